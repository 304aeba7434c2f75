"""Cross entropy that holds, of each logit, the logit and its gradient: fp32 exists for a few tokens at a time.

Torch's own keeps log-probabilities in fp32 and makes two gradients in fp32: 12 bytes per logit.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from geotrain.cost.memory import LOGITS_AT_A_TIME


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy in fp32, summed over the tokens: pieces add up, and the caller divides.

    Each of several tensor-parallel processes gives the logits of its words and gets the loss over all words.
    """
    from torch.distributed.tensor import DTensor

    first, group = 0, None
    if isinstance(logits, DTensor):
        mesh, words = logits.device_mesh, logits.shape[-1]
        first, group = mesh.get_local_rank() * -(-words // mesh.size()), mesh.get_group()
        logits = logits.to_local()
    total: Tensor = _CrossEntropy.apply(logits.flatten(0, -2), targets.flatten() - first, group)  # type: ignore[no-untyped-call]
    return total


class _CrossEntropy(torch.autograd.Function):
    """Of logits [token, word] and targets [token], counted from the first of these words."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        place, here = _target(logits, targets)
        right = torch.where(here, logits.gather(-1, place).float(), 0.0)
        norm = torch.cat([some.float().logsumexp(-1, keepdim=True) for some in _pieces(logits, logits)])
        if group is not None:
            most = norm.clone()
            dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
            sums = torch.stack([(norm - most).exp(), right])
            dist.all_reduce(sums, group=group)
            norm, right = sums[0].log() + most, sums[1]
        ctx.save_for_backward(logits, targets, norm)
        return (norm - right).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor, None, None]:
        logits, targets, norm = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        for out, *piece in zip(*(_pieces(each, logits) for each in (gradient, logits, targets, norm)), strict=True):
            out.copy_(_gradient(*piece).mul_(given))
        return gradient, None, None


def _gradient(logits: Tensor, targets: Tensor, norm: Tensor) -> Tensor:
    """Return the words' probabilities, less 1 for the target."""
    place, here = _target(logits, targets)
    return (logits - norm).exp_().scatter_add_(-1, place, -here.float())


def _target(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return [token, 1]: which of these words is the target, and whether it is one of them."""
    words, targets = logits.shape[-1], targets.unsqueeze(-1)
    return targets.clamp(0, words - 1), (targets >= 0) & (targets < words)


def _pieces(tensor: Tensor, logits: Tensor) -> tuple[Tensor, ...]:
    """Split the tensor by tokens, so few at a time that their logits are not many."""
    tokens = max(1, LOGITS_AT_A_TIME // logits.shape[-1])
    pieces: tuple[Tensor, ...] = tensor.split(tokens)  # type: ignore[no-untyped-call]
    return pieces
