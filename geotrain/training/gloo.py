"""Words among the processes of a gloo group: JSON in tensors of bytes, never pickled objects."""

import json
from typing import Any

import torch
import torch.distributed as dist

from geotrain.errors import RunError

MOST_WORDS_BYTES = 64 << 20
"""What a process or a leader may say at a time."""


def gather(words: Any, world: int, group: dist.ProcessGroup | None = None) -> list[Any]:
    """What each of the group has to say, by rank; all call it. Without a group, all processes of the data center."""
    data = json.dumps(words).encode()
    if world == 1:
        return [json.loads(data)]
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(data)]), group=group)
    most = max(int(size) for size in sizes)
    if most > MOST_WORDS_BYTES:
        raise RunError(f"a process says {most} bytes, allowed are {MOST_WORDS_BYTES}")
    mine = torch.zeros(most, dtype=torch.uint8)
    mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    parts = [torch.zeros_like(mine) for _ in range(world)]
    dist.all_gather(parts, mine, group=group)
    return [json.loads(part.numpy()[: int(size)].tobytes()) for part, size in zip(parts, sizes, strict=True)]


def broadcast(data: bytes, world: int) -> bytes:
    """What rank 0 of this data center has."""
    if world == 1:
        return data
    size = torch.tensor([len(data)])
    dist.broadcast(size, 0)
    place = torch.zeros(int(size), dtype=torch.uint8)
    if dist.get_rank() == 0:
        place = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    dist.broadcast(place, 0)
    return place.numpy().tobytes()
