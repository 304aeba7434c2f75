"""torch's `.metadata`, read without trust: where each tensor of a stage lies in its files.

It is a pickle, and one from elsewhere may call any function, change classes, or ask for any amount of memory. This
reader knows the few instructions that torch's metadata is made of, makes the few kinds of objects in it, and checks
that they speak of files of this stage only.
"""

import dataclasses
import io
import pickle
from collections.abc import Callable, Mapping
from pathlib import PosixPath
from typing import Any, ClassVar

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.serialization import _get_layout

from geotrain.training.checkpoint.manifest import FileRecord

MOST_BYTES = 64 << 20
"""Of the file: more than the metadata of a hundred thousand pieces of tensors."""


def read(content: bytes, files: Mapping[str, FileRecord]) -> Metadata:
    """Return the metadata; UnpicklingError says what is wrong with it."""
    try:
        metadata = _Unpickler(io.BytesIO(content)).load()
    except pickle.UnpicklingError:
        raise
    except Exception:
        # What is no pickle raises all kinds.
        raise pickle.UnpicklingError("it is no metadata of torch") from None
    if not isinstance(metadata, Metadata):
        raise pickle.UnpicklingError("it is no metadata of torch")
    for field in ("state_dict_metadata", "storage_data"):
        if not isinstance(getattr(metadata, field, None), dict):
            raise pickle.UnpicklingError(f"it has no {field}")
    for name, tensor in metadata.state_dict_metadata.items():
        if not _is_tensor(tensor):
            raise pickle.UnpicklingError(f"it does not say how {str(name)[:100]!r} is cut")
    for info in metadata.storage_data.values():
        _check_place(info, files)
    return metadata


def _is_tensor(tensor: object) -> bool:
    return (
        isinstance(tensor, TensorStorageMetadata)
        and isinstance(vars(tensor).get("properties"), TensorProperties)
        and isinstance(vars(tensor).get("size"), torch.Size)
        and isinstance(chunks := vars(tensor).get("chunks"), list)
        and all(
            isinstance(chunk, ChunkStorageMetadata)
            and isinstance(vars(chunk).get("offsets"), torch.Size)
            and isinstance(vars(chunk).get("sizes"), torch.Size)
            for chunk in chunks
        )
    )


def _check_place(info: object, files: Mapping[str, FileRecord]) -> None:
    """A part of a file that the stage has."""
    known = vars(info) if isinstance(info, _StorageInfo) else {}
    name, offset, length = (known.get(field) for field in ("relative_path", "offset", "length"))
    if not isinstance(name, str) or name not in files:
        raise pickle.UnpicklingError(f"it names the file {str(name)[:100]!r}, which is none of this stage's")
    if type(offset) is not int or type(length) is not int or not 0 <= offset <= files[name].size_bytes - length:
        raise pickle.UnpicklingError(f"it names a part of {name} that is not there")
    if length < 0 or known.get("transform_descriptors"):
        raise pickle.UnpicklingError(f"it names a part of {name} that geotrain does not write")


_KINDS = (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
    _StorageInfo,
)
_CALLED: tuple[Callable[..., Any], ...] = (torch.Size, PosixPath, _get_layout, _MEM_FORMAT_ENCODING)
_NEEDED: dict[tuple[str, str], Any] = {(kind.__module__, kind.__name__): kind for kind in _KINDS} | {
    (_get_layout.__module__, _get_layout.__name__): _get_layout,
    (_MEM_FORMAT_ENCODING.__module__, _MEM_FORMAT_ENCODING.__name__): _MEM_FORMAT_ENCODING,
    ("torch", "Size"): torch.Size,
    ("pathlib", "PosixPath"): PosixPath,
    ("pathlib._local", "PosixPath"): PosixPath,
}
"""What torch's metadata of plain and of cut tensors is made of."""
_FIELDS = {kind: {field.name for field in dataclasses.fields(kind)} for kind in _KINDS}
_INSTRUCTIONS = (
    pickle.PROTO + pickle.FRAME + pickle.STOP + pickle.MARK + pickle.MEMOIZE
    + pickle.BINPUT + pickle.LONG_BINPUT + pickle.BINGET + pickle.LONG_BINGET
    + pickle.NONE + pickle.NEWTRUE + pickle.NEWFALSE
    + pickle.BININT + pickle.BININT1 + pickle.BININT2 + pickle.LONG1
    + pickle.BINUNICODE + pickle.SHORT_BINUNICODE
    + pickle.EMPTY_TUPLE + pickle.TUPLE + pickle.TUPLE1 + pickle.TUPLE2 + pickle.TUPLE3
    + pickle.EMPTY_LIST + pickle.APPEND + pickle.APPENDS
    + pickle.EMPTY_DICT + pickle.SETITEM + pickle.SETITEMS
    + pickle.GLOBAL + pickle.STACK_GLOBAL + pickle.REDUCE + pickle.NEWOBJ + pickle.BUILD
)  # fmt: skip


class _Unpickler(pickle._Unpickler):
    """In Python: its memo is a dict, while that in C is an array as long as the file says."""

    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[dict[int, Callable[..., None]]] = {
        code: pickle._Unpickler.dispatch[code] for code in _INSTRUCTIONS
    }

    def find_class(self, module: str, name: str) -> Any:
        if (found := _NEEDED.get((module, name))) is not None:
            return found
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no checkpoint of ours needs")

    def _reduce(self) -> None:
        arguments = self.stack.pop()
        if self.stack[-1] not in _CALLED:
            raise _foreign()
        self.stack[-1] = self.stack[-1](*arguments)

    def _new(self) -> None:
        arguments = self.stack.pop()
        kind = self.stack.pop()
        if kind not in _KINDS or arguments != ():
            raise _foreign()
        self.append(object.__new__(kind))

    def _build(self) -> None:
        state = self.stack.pop()
        made = self.stack[-1]
        if isinstance(made, TensorProperties):
            made.__setstate__(state)  # type: ignore[no-untyped-call]
        elif isinstance(state, dict) and state.keys() <= _FIELDS.get(type(made), set()):
            # Past `__setattr__`, for some are frozen.
            vars(made).update(state)
        else:
            raise _foreign()

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put(key, value)

    def _set_items(self) -> None:
        items = self.pop_mark()
        for key, value in zip(items[::2], items[1::2], strict=True):
            self._put(key, value)

    def _put(self, key: object, value: object) -> None:
        """Keys are texts or places: the hash of tuples within tuples could take forever."""
        if isinstance(key, MetadataIndex):
            plain = isinstance(vars(key).get("fqn"), str) and isinstance(key.offset, torch.Size | None)
        else:
            plain = isinstance(key, str)
        if not plain or not isinstance(self.stack[-1], dict):
            raise _foreign()
        self.stack[-1][key] = value

    dispatch |= {
        pickle.REDUCE[0]: _reduce,
        pickle.NEWOBJ[0]: _new,
        pickle.BUILD[0]: _build,
        pickle.SETITEM[0]: _set_item,
        pickle.SETITEMS[0]: _set_items,
    }


def _foreign() -> pickle.UnpicklingError:
    return pickle.UnpicklingError("it does what no checkpoint of ours does")
