"""The one place that knows torch.distributed.checkpoint: tensors to the files of a directory and back."""

import os
import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from geotrain.errors import RunError
from geotrain.files import open_regular
from geotrain.training.checkpoint import metadata
from geotrain.training.checkpoint.manifest import DamagedError, FileRecord, TensorRecord

METADATA = ".metadata"


class _Writer(FileSystemWriter):
    def write_data(self, *args: Any) -> Any:
        """A full disk reaches the other ranks as such: torch.save hides it behind a complaint about its own state."""
        try:
            return super().write_data(*args)
        except RuntimeError as error:
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None


class _Files(FileSystem):
    """Files of one directory, of which each is what it says: no pipe that has no end, no link to elsewhere."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """Open to read."""
        with open_regular(Path(path), follow=False) as file:
            yield file


class _Reader(FileSystemReader):
    """Does not run what it reads, and reads only files of the stage."""

    def __init__(self, directory: Path, files: Mapping[str, FileRecord]) -> None:
        super().__init__(directory)
        self.fs = _Files()
        # At once: torch would take an error for a reason to look elsewhere.
        if METADATA not in files:
            raise pickle.UnpicklingError("the stage does not list it")
        if (size_bytes := files[METADATA].size_bytes) > metadata.MOST_BYTES:
            raise pickle.UnpicklingError(f"it has more than {metadata.MOST_BYTES >> 20} MiB")
        with open_regular(directory / METADATA, follow=False) as file:
            self._metadata = metadata.read(file.read(size_bytes), files)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self._metadata.storage_meta = StorageMeta(load_id=self.load_id)
        return self._metadata


def save(state: Mapping[str, Tensor], directory: Path, group: ProcessGroup | None) -> dict[str, TensorRecord]:
    """Write the union of what the group's ranks hold, each tensor once; what there is of it in all."""
    try:
        written = state_dict_saver.save(
            dict(state), storage_writer=_Writer(directory), process_group=group, no_dist=group is None
        )
    except CheckpointException as error:
        rank, (reason, _) = min(error.failures.items(), key=lambda item: item[0])
        raise RunError(f"{why(reason)}{f' (rank {rank} of the stage)' if rank else ''}") from None
    return {
        name: TensorRecord(shape=tuple(tensor.size), dtype=str(tensor.properties.dtype).removeprefix("torch."))
        for name, tensor in written.state_dict_metadata.items()
        if isinstance(tensor, TensorStorageMetadata)
    }


def files_of(directory: Path, rank: int) -> list[Path]:
    """The files that a rank of the group has written there; the rest is rank 0's."""
    return sorted(directory.glob(f"__{rank}_*")) + ([directory / METADATA] if rank == 0 else [])


def load(state: Mapping[str, Tensor], directory: Path, files: Mapping[str, FileRecord]) -> None:
    """Fill the tensors in place, each process for itself; they may be cut in another way than when written.

    `files` are those of the stage, found good. DamagedError if they are not what `save` writes.
    """
    quiet()
    what_to_do = f"remove {directory.parent} to go on from an older checkpoint"
    try:
        reader = _Reader(directory, files)
    except (pickle.UnpicklingError, OSError) as error:
        raise DamagedError(f"{directory / METADATA}: cannot be read: {why(error)}; {what_to_do}") from None
    try:
        state_dict_loader.load(dict(state), storage_reader=reader, no_dist=True)
    except (CheckpointException, Exception) as error:
        # The former is no Exception.
        reason = next(iter(error.failures.values()))[0] if isinstance(error, CheckpointException) else error
        if not isinstance(reason, Exception):
            raise reason from None
        # What torch says of it is about torch's options; some of that advice would run what is in the file.
        words = why(reason) if isinstance(reason, OSError) else "its files do not hold the tensors that they should"
        raise DamagedError(f"{directory}: cannot be read: {words}; {what_to_do}") from None


def quiet() -> None:
    """Torch warns whenever one process works alone, which is as we want it."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")


def why(error: BaseException) -> str:
    """The reason in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0] if str(error) else type(error).__name__
