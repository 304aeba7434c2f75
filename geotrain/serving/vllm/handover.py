"""Keys and values of a prompt on their way to vLLM: one file each, in a directory in shared memory.

    magic 8 | version 4 | dtype 4 | layers 4 | kv_heads 4 | head_dim 4 | 0 | tokens 8 | lease 8 | prompt 32 | sum 16
    at 127: whether a reader has come
    at 128: [layer, 2, kv_heads, token, head_dim]

Little-endian. The header is written last, so that half a file is none. The file's time is its heartbeat. Knows neither
vLLM nor sockets; nothing is unpickled, and nothing in a file is used before it is checked.
"""

import fcntl
import hashlib
import math
import mmap
import os
import re
import secrets
import struct
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from geotrain.errors import InputError, RunError

_HEADER = struct.Struct("<8s5I4xQd32s")
_MAGIC, _VERSION = b"geotrain", 1
_SUM_BYTES = 16
_READ_AT = 127
_DATA_AT = 128
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_OTHERS = "must belong to this user, and no other may read or write it"
_NAME = re.compile(r"[0-9a-f]{32}")


class GoneError(RunError):
    """The file is not there any more, or nobody keeps it alive: who has its prompt can do without it."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a prompt's keys and values look like."""

    layers: int
    kv_heads: int
    tokens: int
    head_dim: int
    dtype: torch.dtype

    @property
    def layer_bytes(self) -> int:
        """Of one layer."""
        return 2 * self.kv_heads * self.tokens * self.head_dim * self.dtype.itemsize

    @property
    def size_bytes(self) -> int:
        """Of a whole file."""
        return _DATA_AT + self.layers * self.layer_bytes


class Shelf:
    """A directory that one process fills; what others have left there is removed."""

    def __init__(self, directory: Path, *, lease_s: float) -> None:
        """InputError if it cannot be ours alone."""
        self._directory, self._lease_s = directory, lease_s
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise InputError(f"{directory}: cannot be used for keys and values: {error.strerror}") from None
        try:
            if not _is_private(os.fstat(self._lock)):
                raise InputError(f"{directory}: {_OTHERS}")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, BlockingIOError):
                raise InputError(f"{directory}: another process fills it; give each bridge its own") from None
            raise
        self._clean()

    def place(self, form: Form, prompt: Sequence[int]) -> "Handover":
        """A new file, for the keys and values of these tokens; RunError if there is no room."""
        return Handover(self._directory / secrets.token_hex(16), form, prompt, lease_s=self._lease_s)

    def close(self) -> None:
        """Nothing is left behind."""
        self._clean()
        os.close(self._lock)

    def _clean(self) -> None:
        for path in self._directory.iterdir():
            if _NAME.fullmatch(path.name):
                path.unlink(missing_ok=True)


class Handover:
    """One prompt's file, from its first layer to `close`. No reader sees it before `seal`."""

    def __init__(self, path: Path, form: Form, prompt: Sequence[int], *, lease_s: float) -> None:
        self._path, self._form, self._prompt, self._lease_s = path, form, prompt, lease_s
        self._there = [0] * form.layers
        if form.dtype not in _DTYPES:
            raise RunError(f"keys and values of {form.dtype} cannot be handed over")
        with _room(path):
            self._file: int | None = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            os.ftruncate(self._file, form.size_bytes)

    @property
    def name(self) -> str:
        """In its directory; nobody can guess it."""
        return self._path.name

    @property
    def is_complete(self) -> bool:
        """Whether all layers have all tokens."""
        return min(self._there) == self._form.tokens

    @property
    def is_read(self) -> bool:
        """Whether a reader has come."""
        return self._file is None or os.pread(self._file, 1, _READ_AT) != b"\0"

    def write(self, layer: int, start: int, kv: Tensor) -> None:
        """Keys and values [2, kv_heads, token, head_dim] from token `start` on, in order or again."""
        form, tokens = self._form, kv.shape[2] if kv.dim() == 4 else 0
        if not 0 <= layer < form.layers or kv.shape != (2, form.kv_heads, tokens, form.head_dim):
            raise RunError(f"keys and values {list(kv.shape)} of layer {layer} are of another model")
        if kv.dtype != form.dtype:
            raise RunError(f"keys and values came in {form.dtype}, and now in {kv.dtype}")
        if start > self._there[layer] or start + tokens > form.tokens:
            raise RunError(
                f"layer {layer} has keys and values of {self._there[layer]} tokens of {form.tokens}, and those of "
                f"{start} to {start + tokens} came"
            )
        assert self._file is not None, "written after close"
        token_bytes = form.head_dim * form.dtype.itemsize
        at = _DATA_AT + layer * form.layer_bytes + start * token_bytes
        with _room(self._path):
            for number, head in enumerate(kv.reshape(2 * form.kv_heads, -1).view(torch.uint8).numpy()):
                _put(self._file, head.data, at + number * form.tokens * token_bytes)
        self._there[layer] = max(self._there[layer], start + tokens)

    def seal(self) -> None:
        """It is complete: readers may have it."""
        assert self._file is not None and self.is_complete, "sealed too early, or too late"
        form = self._form
        sizes = form.layers, form.kv_heads, form.head_dim, form.tokens
        about = (_MAGIC, _VERSION, _DTYPES.index(form.dtype), *sizes, self._lease_s, _digest(self._prompt))
        header = _HEADER.pack(*about)
        with _room(self._path):
            _put(self._file, memoryview(header + _sum(header)), 0)

    def renew(self) -> None:
        """Another lease, from now on."""
        if self._file is not None:
            os.utime(self._file)

    def close(self) -> None:
        """Whoever has it open may read on; nobody else."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None


@dataclass(frozen=True, kw_only=True)
class Handed:
    """A file that was found good."""

    form: Form
    _content: mmap.mmap

    def layer(self, number: int) -> Tensor:
        """Its keys and values [2, kv_heads, token, head_dim]; they are gone with the file."""
        form = self.form
        at = _DATA_AT + number * form.layer_bytes
        flat = torch.frombuffer(
            self._content, dtype=form.dtype, count=form.layer_bytes // form.dtype.itemsize, offset=at
        )
        return flat.view(2, form.kv_heads, form.tokens, form.head_dim)


@contextmanager
def taken(directory: Path, name: str, prompt: Sequence[int]) -> Iterator[Handed]:
    """The keys and values of the first tokens of a prompt.

    GoneError if they are not there any more, RunError if the file is not what it should be.
    """
    if not _NAME.fullmatch(name):
        raise RunError(f"{name[:80]!r} is not the name of a file with keys and values")
    path = directory / name
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            form = _checked(path, file, prompt)
            os.pwrite(file, b"\1", _READ_AT)
            # A private mapping: torch wants memory that it could write to.
            content = mmap.mmap(file, form.size_bytes, access=mmap.ACCESS_COPY)
        finally:
            os.close(file)
    except FileNotFoundError:
        raise GoneError(f"{path}: is gone") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from None
    yield Handed(form=form, _content=content)


def _checked(path: Path, file: int, prompt: Sequence[int]) -> Form:
    about, header = os.fstat(file), os.pread(file, _HEADER.size + _SUM_BYTES, 0)
    if not _is_private(about):
        raise RunError(f"{path}: {_OTHERS}")
    if len(header) < _HEADER.size + _SUM_BYTES or not header.startswith(_MAGIC):
        raise RunError(f"{path}: holds no keys and values, or not all of them")
    if header[_HEADER.size :] != _sum(header[: _HEADER.size]):
        raise RunError(f"{path}: its header is damaged")
    _, version, dtype, layers, kv_heads, head_dim, tokens, lease_s, digest = _HEADER.unpack(header[: _HEADER.size])
    if version != _VERSION:
        raise RunError(f"{path}: is of version {version}, this side reads {_VERSION}")
    if dtype >= len(_DTYPES) or not math.prod((layers, kv_heads, head_dim, tokens)):
        raise RunError(f"{path}: its header makes no sense")
    form = Form(layers=layers, kv_heads=kv_heads, tokens=tokens, head_dim=head_dim, dtype=_DTYPES[dtype])
    if about.st_size != form.size_bytes:
        raise RunError(f"{path}: has {about.st_size} bytes and should have {form.size_bytes}")
    if digest != _digest(prompt[:tokens]):
        raise RunError(f"{path}: has the keys and values of another prompt")
    if time.time() - about.st_mtime > lease_s:
        raise GoneError(f"{path}: nobody has renewed its lease of {lease_s:g} s")
    return form


def _is_private(about: os.stat_result) -> bool:
    return about.st_uid == os.geteuid() and not about.st_mode & 0o077


def _sum(header: bytes) -> bytes:
    return hashlib.blake2b(header, digest_size=_SUM_BYTES).digest()


def _digest(prompt: Sequence[int]) -> bytes:
    return hashlib.blake2b(array("q", prompt).tobytes(), digest_size=32).digest()


def _put(file: int, data: memoryview, at: int) -> None:
    while data:
        done = os.pwrite(file, data, at)
        data, at = data[done:], at + done


@contextmanager
def _room(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise RunError(f"{path.parent}: no room for keys and values: {error.strerror}") from None
