"""The one place that knows torch.distributed.checkpoint: tensors to the files of a directory and back."""

import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from geotrain.errors import RunError
from geotrain.training.checkpoint.manifest import TensorRecord

METADATA = ".metadata"


class _Writer(FileSystemWriter):
    def write_data(self, *args: Any) -> Any:
        """A full disk reaches the other ranks as such: torch.save hides it behind a complaint about its own state."""
        try:
            return super().write_data(*args)
        except RuntimeError as error:
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None


class _Reader(FileSystemReader):
    """Does not run what it reads: a pickle from elsewhere could name any function of this machine."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        # At once: torch would take an error for a reason to look elsewhere.
        try:
            with (directory / METADATA).open("rb") as file:
                self._metadata: Metadata = _Unpickler(file).load()
        except Exception as error:
            # Broken pickles raise all kinds.
            raise RunError(f"{directory}: cannot be read: {why(error)}") from None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self._metadata.storage_meta = StorageMeta(load_id=self.load_id)
        return self._metadata


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = getattr(torch, name, None) if module == "torch" else None
        if (module, name) in _NEEDED or isinstance(found, torch.dtype):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"its {METADATA} asks for {module}.{name}, which no checkpoint of ours needs")


_NEEDED = {
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"),
    *(
        (kind.__module__, kind.__name__)
        for kind in (
            ChunkStorageMetadata,
            Metadata,
            MetadataIndex,
            StorageMeta,
            TensorProperties,
            TensorStorageMetadata,
        )
    ),
}
"""What torch's metadata of plain and of cut tensors is made of."""


def save(state: Mapping[str, Tensor], directory: Path, group: ProcessGroup | None) -> dict[str, TensorRecord]:
    """Write the union of what the group's ranks hold, each tensor once; what there is of it in all."""
    with _one_sentence():
        metadata = state_dict_saver.save(
            dict(state), storage_writer=_Writer(directory), process_group=group, no_dist=group is None
        )
    return {
        name: TensorRecord(shape=tuple(tensor.size), dtype=str(tensor.properties.dtype).removeprefix("torch."))
        for name, tensor in metadata.state_dict_metadata.items()
        if isinstance(tensor, TensorStorageMetadata)
    }


def files_of(directory: Path, rank: int) -> list[Path]:
    """The files that a rank of the group has written there; the rest is rank 0's."""
    return sorted(directory.glob(f"__{rank}_*")) + ([directory / METADATA] if rank == 0 else [])


def load(state: Mapping[str, Tensor], directory: Path) -> None:
    """Fill the tensors in place, each process for itself; they may be cut in another way than when written."""
    quiet()
    with _one_sentence(f"{directory}: cannot be read: "):
        state_dict_loader.load(dict(state), storage_reader=_Reader(directory), no_dist=True)


def quiet() -> None:
    """Torch warns whenever one process works alone, which is as we want it."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")


@contextmanager
def _one_sentence(before: str = "") -> Iterator[None]:
    try:
        yield
    except CheckpointException as error:
        rank, (reason, _) = min(error.failures.items(), key=lambda item: item[0])
        raise RunError(f"{before}{why(reason)}{f' (rank {rank} of the stage)' if rank else ''}") from None


def why(error: BaseException) -> str:
    """The reason in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0] if str(error) else type(error).__name__
