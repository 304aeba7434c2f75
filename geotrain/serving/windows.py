"""The file in which a training process says when its slot is idle, and how to read it.

    DIR/east-0.window    shared memory: two records, written in turn
    DIR/east-0.wake      a pipe: a byte comes when a step or a window begins, so that nobody has to look all the time

Each record has a number and a checksum, and the newest that is whole counts: neither side ever waits for the other, on
any processor. The writer holds a lock on the file as long as it lives; whoever can have it knows that training is gone,
however it ended. Every start of training makes a new file. Times are CLOCK_MONOTONIC's, which all processes of a
machine share. DIR should be in memory (/dev/shm): a disk that is being written to may keep the writer waiting. It must
be this user's alone: where others may write, they could say that training is idle when it is not.
"""

import enum
import fcntl
import mmap
import os
import struct
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from geotrain.errors import InputError, RunError
from geotrain.files import make_private

VERSION = 1
NUM_PAST = 16
"""Windows that are over, of which a record tells."""
_MAGIC = b"geoW"
_HEAD = struct.Struct("<4sHBBQQdqddqdddddQQd")
_PAST = struct.Struct("<qddd")
_BODY_BYTES = _HEAD.size + NUM_PAST * _PAST.size
_NUMBER, _NUMBER_AT = struct.Struct("<Q"), 8
_CRC = struct.Struct("<I")
_RECORD_BYTES = _BODY_BYTES + _CRC.size
FILE_BYTES = 2 * _RECORD_BYTES
_TRIES = 1000
LOOK_S = 0.02
"""How often a reader looks whether training has died or begun anew."""


class State(enum.IntEnum):
    """What training is doing."""

    STARTING = 0
    RUNNING = 1
    ENDED = 2


class Past(NamedTuple):
    """A window that is over."""

    mark: int
    """What it waited for: the number of an action of the step, or one of the two marks behind these."""
    start_s: float
    end_s: float
    expected_s: float
    """When it should have ended."""


class Record(NamedTuple):
    """What is known of a slot."""

    state: State
    is_open: bool
    """Whether the slot has nothing to do."""
    number: int
    """Of the record."""
    pid: int
    born_s: float
    """When the process began to announce."""
    step: int
    begin_s: float
    """Of the step."""
    length_s: float
    """That the step should have."""
    mark: int
    """What the last window waits for, or waited."""
    start_s: float
    """Of the last window."""
    end_s: float
    """When that should end, or should have ended."""
    lead_s: float
    """Above 0: what it waits for has not set out, and when it does the slot will be idle for so long at least."""
    over_s: float
    """When the slot went on the last time."""
    changed_s: float
    """When this was written."""
    num_windows: int
    """Begun so far."""
    num_past: int
    """Over so far."""
    idle_s: float
    """Length of those that are over."""
    past: tuple[Past, ...]
    """The last of those, the newest last."""


def place(number: int) -> slice:
    """Where in the file the record of that number goes."""
    start = number % 2 * _RECORD_BYTES
    return slice(start, start + _RECORD_BYTES)


def pack(record: Record) -> bytes:
    """The record's bytes; there is one way to write each."""
    body = _HEAD.pack(_MAGIC, VERSION, *record[:-1]) + b"".join(_PAST.pack(*past) for past in record.past)
    return body + _CRC.pack(zlib.crc32(body))


def unpack(raw: bytes) -> Record | None:
    """The record that these bytes are, if they are one."""
    if len(raw) != _RECORD_BYTES or zlib.crc32(raw[:_BODY_BYTES]) != _CRC.unpack_from(raw, _BODY_BYTES)[0]:
        return None
    magic, version, state, is_open, *rest = _HEAD.unpack_from(raw)
    if magic != _MAGIC or version != VERSION:
        return None
    past = tuple(map(Past._make, _PAST.iter_unpack(raw[_HEAD.size : _BODY_BYTES])))
    return Record._make((State(state), bool(is_open), *rest, past))


def newest(raw: bytes) -> Record | None:
    """Of a file's two records the last one that is whole."""
    halves = raw[place(0)], raw[place(1)]
    later = _NUMBER.unpack_from(halves[1], _NUMBER_AT) > _NUMBER.unpack_from(halves[0], _NUMBER_AT)
    return unpack(halves[later]) or unpack(halves[not later])


def paths(directory: Path, name: str) -> tuple[Path, Path]:
    """File and pipe of a process."""
    return directory / f"{name}.window", directory / f"{name}.wake"


def open_pipe(path: Path) -> int:
    """Made if it is missing, in a directory of our own; open for both, so that it neither blocks nor ends."""
    make_private(path.parent)
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        if not path.is_fifo():
            raise FileExistsError(None, "is there, and is no pipe") from None
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


class Reader:
    """What one training process says. Not for several threads; there may be several readers."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = paths(directory, name)[0]
        self._file: int | None = None
        self._memory: mmap.mmap | None = None
        self._inode = 0
        self._look_s = 0.0

    def read(self) -> Record | None:
        """None if no process is there to say anything; RunError if the file cannot be understood."""
        now_s = time.monotonic()
        if now_s >= self._look_s:
            self._look_s = now_s + LOOK_S
            self._look()
        if self._memory is None:
            return None
        for _ in range(_TRIES):
            # Both records can be torn if the writer is much faster than this copy: then once more.
            if (record := newest(self._memory[:])) is not None:
                return record
        raise self._strange()

    def _look(self) -> None:
        """Map the file anew if there is another one; let go of it if its writer is gone."""
        with suppress(FileNotFoundError):
            if (inode := self._path.stat().st_ino) != self._inode:
                self.close()
                self._map()
                self._inode = inode
        if self._file is not None and not _is_held(self._file):
            self.close()

    def _map(self) -> None:
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise InputError(f"{self._path}: cannot be read: {error.strerror}") from None
        if os.fstat(self._file).st_size != FILE_BYTES:
            raise self._strange()
        self._memory = mmap.mmap(self._file, FILE_BYTES, prot=mmap.PROT_READ)

    def _strange(self) -> RunError:
        self.close()
        self._inode = 0
        return RunError(f"{self._path}: is not a window file of version {VERSION}")

    def close(self) -> None:
        """Let go of the file."""
        if self._memory is not None:
            self._memory.close()
        if self._file is not None:
            os.close(self._file)
        self._memory = self._file = None


def _is_held(file: int) -> bool:
    """Whether the writer lives: the lock is given back by the kernel when it dies."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
