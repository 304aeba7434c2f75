"""Gradients after a step's last backward: summed over the copies of a stage, and over the two ends of a tied head."""

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

from geotrain.transport import Channel, Direction, Header

BUCKET_BYTES = 64 << 20
SWAP_BYTES = 64 << 20
"""A piece of what crosses the WAN; the whole may be larger than any buffer."""
_AHEAD = 4
"""Pieces sent before the first is awaited: far below a channel's window, where both sides would wait for each other."""


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this GPU holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def complete(parameters: Sequence[Tensor]) -> None:
    """Sum the gradients of which each GPU of a slot holds a summand: those of norms of heads."""
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and any(placement.is_partial() for placement in gradient.placements):
            parameter.grad = gradient.redistribute(placements=[Replicate()] * gradient.device_mesh.ndim)


def all_reduce(parameters: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Sum the gradients over the group, a bucket at a time; all have the same bits afterwards."""
    for bucket in _buckets(parameters):
        flat = torch.cat([local(gradient).reshape(-1) for gradient in bucket])
        dist.all_reduce(flat, group=group)
        parts = torch.split(flat, [local(gradient).numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            local(gradient).copy_(part.view_as(local(gradient)))


def _buckets(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size_bytes = 0
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            gradient = parameter.grad = torch.zeros_like(parameter)
        if bucket and (size_bytes + gradient.nbytes > BUCKET_BYTES or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket, size_bytes = [], 0
        bucket.append(gradient)
        size_bytes += gradient.nbytes
    if bucket:
        yield bucket


def squared_norm(parameters: Sequence[Tensor], *, part: int) -> float:
    """Of what this GPU answers for: its pieces of cut gradients, and whole ones if it is the slot's first."""
    total = 0.0
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is not None and (part == 0 or _is_cut(gradient)):
            total += float(local(gradient).double().square().sum())
    return total


def _is_cut(tensor: Tensor) -> bool:
    return isinstance(tensor, DTensor) and any(placement.is_shard() for placement in tensor.placements)


class TiedEnds:
    """Embedding and head are one matrix, kept at both ends of the pipeline: both get the sum of the two gradients.

    The ends of the first pipeline swap gradients, then tell the other pipelines' copies.
    """

    def __init__(
        self,
        end: Tensor,
        *,
        is_first: bool,
        across: Channel | int | None,
        copies: dist.ProcessGroup | None,
        job: str,
        deadline_s: float,
    ) -> None:
        self._end, self._is_first, self._across, self._copies = end, is_first, across, copies
        self._job, self._deadline_s = job, deadline_s

    def sum(self) -> None:
        """To be called on both ends of every pipeline, after `all_reduce`."""
        gradient = self._end.grad
        if gradient is None:
            gradient = self._end.grad = torch.zeros_like(self._end)
        mine = local(gradient)
        if self._across is not None:
            theirs = self._swap(mine)
            # In the same order on both sides, so that both have the same bits.
            mine.copy_(mine + theirs if self._is_first else theirs + mine)
        if self._copies is not None:
            dist.broadcast(mine, group_src=0, group=self._copies)

    def _swap(self, mine: Tensor) -> Tensor:
        theirs = torch.empty_like(mine)
        if isinstance(self._across, int):
            sent = dist.isend(mine.contiguous(), self._across)
            dist.recv(theirs, self._across)
            assert sent is not None
            sent.wait()
            return theirs
        assert self._across is not None
        header = Header(job=self._job, step=0, pipeline=0, stage=0, microbatch=0, direction=Direction.BACKWARD)
        host = mine.detach().contiguous().cpu()
        there = torch.empty_like(host)
        out, into = (torch.split(_bytes(tensor), SWAP_BYTES) for tensor in (host, there))
        for number in range(len(out) + _AHEAD):
            if number < len(out):
                self._across.send(header, out[number].numpy().data, deadline_s=self._deadline_s)
            if number >= _AHEAD:
                self._across.receive(deadline_s=self._deadline_s, into=into[number - _AHEAD].numpy().data)
        self._across.flush(deadline_s=self._deadline_s)
        return theirs.copy_(there)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)
