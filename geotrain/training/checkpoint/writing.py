"""One stage on its way to the disk: all ranks of the stage write, and it appears under its name as a whole or never."""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from geotrain.errors import RunError
from geotrain.files import open_regular
from geotrain.training.checkpoint import torch_files
from geotrain.training.checkpoint.manifest import FILE, FileRecord, Manifest
from geotrain.training.checkpoint.steps import remove_temporary, temporary_path
from geotrain.training.gloo import gather
from geotrain.transport.checksum import checksum

_BLOCK_BYTES = 1 << 22


@dataclass(frozen=True)
class Writers:
    """The ranks that write a stage together; without a group it is one process."""

    group: ProcessGroup | None

    @property
    def rank(self) -> int:
        """Of this process."""
        return 0 if self.group is None else dist.get_rank(self.group)

    @property
    def leads(self) -> bool:
        """Whether this process does what one has to do for all."""
        return self.rank == 0

    def gather(self, mine: Any) -> list[Any]:
        """What each has, by rank; all call it. What goes through it is plain enough for JSON."""
        return [mine] if self.group is None else gather(mine, dist.get_world_size(self.group), self.group)

    def together(self, work: Callable[[], Any]) -> list[Any]:
        """What the work gives on each rank; where one fails, all raise the same RunError."""
        made, problem = None, ""
        try:
            made = work()
        except Exception as error:
            problem = torch_files.why(error)
        everyone = self.gather([made, problem])
        for _, problem in everyone:
            if problem:
                raise RunError(problem)
        return [made for made, _ in everyone]


def write(state: Mapping[str, Tensor], draft: Manifest, target: Path, *, token: str, writers: Writers) -> None:
    """Write the stage, or raise RunError on all ranks and leave nothing."""
    temporary = temporary_path(target, token)
    try:
        tensors = torch_files.save(state, temporary, writers.group)
        files = writers.together(
            lambda: {path.name: fingerprint(path).dump() for path in torch_files.files_of(temporary, writers.rank)}
        )
        records = {name: FileRecord(**file) for part in files for name, file in part.items()}
        manifest = draft.model_copy(update={"tensors": tensors, "files": records})
        writers.together(lambda: _finish(manifest, temporary, target) if writers.leads else None)
    finally:
        if writers.leads:
            remove_temporary(temporary)


def fingerprint(path: Path) -> FileRecord:
    """Size and checksum of a file as it is now."""
    size_bytes, crc32 = 0, 0
    with open_regular(path, follow=False) as file:
        while block := file.read(_BLOCK_BYTES):
            size_bytes, crc32 = size_bytes + len(block), checksum(block, crc32)
    return FileRecord(size_bytes=size_bytes, crc32=crc32)


def _finish(manifest: Manifest, temporary: Path, target: Path) -> None:
    """Seal the stage and give it its name; from then on it stays, whatever happens to the machine."""
    for name in manifest.files:
        if not (temporary / name).exists():
            raise RunError(f"{name} is not to be seen on the leading rank's node: the nodes must share the directory")
    (temporary / FILE).write_text(manifest.text(), encoding="utf-8")
    # The data files are on the disk already: torch leaves out the end of its metadata.
    for path in (temporary / FILE, temporary / torch_files.METADATA, temporary):
        _sync(path)
    _replace(temporary, target)
    for path in target.parents[:3]:
        _sync(path)


def _replace(temporary: Path, target: Path) -> None:
    """Take the place of what an earlier attempt may have left there."""
    aside = temporary.with_name(f"{temporary.name}-old")
    with suppress(FileNotFoundError):
        target.rename(aside)
    temporary.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
