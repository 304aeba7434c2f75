"""What the members of a pool say to each other, as a header and data of the channels between them. Pure.

A channel carries headers without looking at them, so the pool writes its own numbers into their fields: `step` is the
number of the buffer among its owner's, `pipeline` the kind of word and a member, `stage` the offset, `microbatch` the
size of the whole buffer. The buffer's true header goes once, in its Opening.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from geotrain.transport.checksum import Buffer
from geotrain.transport.errors import FrameError
from geotrain.transport.header import HEADER_BYTES, Direction, Header

MAX_MEMBERS = 1 << 16
_PLACE = struct.Struct("<QIH")


class Place(NamedTuple):
    """A shard has come: of which buffer, at which offset, by which path."""

    number: int
    offset: int
    path: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """A part of a buffer that belongs to `owner`, or rather to its pipeline; the data goes with it."""

    owner: int
    number: int
    offset: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """From an owner to its counterpart: what buffer `number` is."""

    number: int
    header: Header
    total_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """From an owner's counterpart back to it: what has come, and how many buffers the application has taken."""

    taken: int
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Down:
    """The path over `member` is broken."""

    member: int


Word: TypeAlias = Shard | Opening | Receipt | Down
_KINDS: tuple[type[Word], ...] = (Shard, Opening, Receipt, Down)


def wrap(job: str, word: Word) -> tuple[Header, bytes]:
    """The word as a channel carries it; a shard's data is sent instead of the empty bytes."""
    match word:
        case Shard():
            return _header(job, word, word.owner, word.number, word.offset, word.total_bytes), b""
        case Opening():
            return _header(job, word, 0, word.number, 0, word.total_bytes), word.header.pack()
        case Receipt():
            return _header(job, word, 0, word.taken, 0, 0), _pack(word.places)
        case Down():
            return _header(job, word, word.member, 0, 0, 0), b""


def unwrap(header: Header, data: memoryview) -> Word:
    """The word that was wrapped; FrameError for what makes no sense."""
    kind, member = divmod(header.pipeline, MAX_MEMBERS)
    if kind >= len(_KINDS):
        raise FrameError(f"unknown kind of word {kind}")
    shape = _KINDS[kind]
    if shape is Shard:
        if header.stage + len(data) > header.microbatch:
            raise FrameError(f"{len(data)} bytes at {header.stage} of {header.microbatch}: a shard beyond its buffer")
        return Shard(owner=member, number=header.step, offset=header.stage, total_bytes=header.microbatch)
    if shape is Opening:
        if len(data) != HEADER_BYTES:
            raise FrameError(f"an opening has {HEADER_BYTES} bytes, not {len(data)}")
        return Opening(number=header.step, header=Header.unpack(bytes(data)), total_bytes=header.microbatch)
    if shape is Receipt:
        if len(data) % _PLACE.size:
            raise FrameError("a receipt is cut off")
        return Receipt(taken=header.step, places=tuple(Place(*place) for place in _PLACE.iter_unpack(data)))
    return Down(member=member)


def _header(job: str, word: Word, member: int, number: int, offset: int, total_bytes: int) -> Header:
    return Header(
        job=job,
        step=number,
        pipeline=_KINDS.index(type(word)) * MAX_MEMBERS + member,
        stage=offset,
        microbatch=total_bytes,
        direction=Direction.FORWARD,
    )


def _pack(places: Iterable[Place]) -> bytes:
    return b"".join(_PLACE.pack(*place) for place in places)


Item: TypeAlias = tuple[Header, Buffer]
"""What a channel takes."""
