"""Two cells and the pools between them, in one process, on channels in memory."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from geotrain.transport import Channel, Direction, Header
from geotrain.transport.memory import MemoryChannel, memory_pair
from geotrain.transport.pool import Pooling, pooled

JOB = "j"
SMALL = Pooling(min_chunk_bytes=4096, chunk_bytes=64 << 10, patience_s=0.2)
"""Many shards for few bytes."""


def header(pipeline: int = 0, microbatch: int = 0, direction: Direction = Direction.FORWARD) -> Header:
    return Header(job=JOB, step=1, pipeline=pipeline, stage=3, microbatch=microbatch, direction=direction)


def noise(size: int, *seed: int) -> memoryview:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).data


@dataclass
class Cells:
    """`near[i]` and `far[i]` are counterparts, called n0, n1... and f0, f1..."""

    near: list[Channel] = field(default_factory=list)
    far: list[Channel] = field(default_factory=list)
    ends: dict[frozenset[str], tuple[MemoryChannel, MemoryChannel]] = field(default_factory=dict)

    def kill(self, node: str) -> None:
        """All its channels are lost, at both ends."""
        for nodes in self.ends:
            if node in nodes:
                self.cut(*nodes)

    def cut(self, one: str, other: str) -> None:
        """The channel between two nodes is lost at both ends."""
        for end in self.ends[frozenset({one, other})]:
            end.lose_peer()


@contextmanager
def cells(
    size: int,
    pooling: Pooling = SMALL,
    *,
    delay_s: float = 0.0,
    rate_bytes_per_s: float = math.inf,
    fabric_bytes_per_s: float = math.inf,
    names: Mapping[str, str] | None = None,
) -> Iterator[Cells]:
    """Pools of K = `size`; rate and delay are those of a pair over the WAN."""
    made = Cells()
    channels: dict[str, dict[str, Channel]] = {f"{side}{n}": {} for side in "nf" for n in range(size)}

    def join(one: str, other: str, delay_s: float, rate: float) -> None:
        called = [(names or {}).get(name, name) for name in (one, other)]
        ends = memory_pair(*called, delay_s=delay_s, rate_bytes_per_s=rate)
        made.ends[frozenset({one, other})] = ends
        channels[one][other], channels[other][one] = ends

    for n in range(size):
        join(f"n{n}", f"f{n}", delay_s, rate_bytes_per_s)
        for m in range(n):
            join(f"n{m}", f"n{n}", 0, fabric_bytes_per_s)
            join(f"f{m}", f"f{n}", 0, fabric_bytes_per_s)
    for n in range(size):
        for here, there, side in (("n", "f", made.near), ("f", "n", made.far)):
            mine = channels[f"{here}{n}"]
            lan = {m: mine[f"{here}{m}"] for m in range(size) if m != n}
            side.append(pooled(member=n, lan=lan, wan=mine[f"{there}{n}"], job=JOB, pooling=pooling))
    try:
        yield made
    finally:
        for pool in made.near + made.far:
            pool.close(deadline_s=0.5)
