"""stage.json: what the checkpoint of a stage holds, and how to tell that it is whole."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from geotrain.errors import InputError
from geotrain.files import Document, Whole, read_text
from geotrain.model import Config
from geotrain.transport.checksum import checksum

FILE = "stage.json"


class DamagedError(InputError):
    """A checkpoint is incomplete or not as it was written; an older one may be good."""


class Position(Document):
    """How far a run is."""

    step: Whole
    """Optimizer updates done."""
    samples: Whole = 0
    """Sequences seen."""
    tokens: Whole = 0
    data: str = ""
    """Fingerprint of the token data and its order."""


class TensorRecord(Document):
    """A tensor as a whole, however it was cut."""

    shape: tuple[Whole, ...]
    dtype: str


class FileRecord(Document):
    """A file as it was written."""

    size_bytes: Whole
    crc32: Whole


class Manifest(Document):
    """Everything but the tensors."""

    stage: Whole
    """Slot stage: with all chunks of it."""
    num_stages: Whole
    attempt: str
    """Which start of the run wrote it: only stages of one attempt belong together."""
    position: Position
    model: Config
    tensors: Mapping[str, TensorRecord] = {}
    files: Mapping[str, FileRecord] = {}
    crc32: Whole = 0
    """Of all the above."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file; DamagedError says what is wrong with it."""
        try:
            manifest = cls.parse(json.loads(read_text(path, follow=False)), source=path)
        except (InputError, ValueError, RecursionError) as error:
            raise DamagedError(str(error) if isinstance(error, InputError) else f"{path}: not valid JSON") from None
        if strange := next((name for name in manifest.files if Path(name).name != name), None):
            raise DamagedError(f"{path}: files: {strange!r} must be the name of a file beside it")
        if manifest.crc32 != manifest._crc32():
            raise DamagedError(f"{path}: is damaged: its checksum is another")
        return manifest

    def text(self) -> str:
        """What the file contains."""
        return self.model_copy(update={"crc32": self._crc32()}).model_dump_json(indent=1) + "\n"

    def _crc32(self) -> int:
        return checksum(self.model_dump_json(exclude={"crc32"}).encode())
