"""A linear layer whose weight gradient can wait: actions I and W of a split backward.

Knows autograd; works on plain tensors and on torch's DTensors alike, because it only multiplies.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_HEAD = "lm_head"


class Later:
    """Weight gradients still to be computed, with the inputs and output gradients that they need."""

    def __init__(self) -> None:
        self._products: deque[tuple[Tensor, Tensor, Tensor]] = deque()

    def add(self, weight: Tensor, x: Tensor, gradient: Tensor) -> None:
        """Keep both factors of a weight's gradient."""
        self._products.append((weight, x, gradient))

    def run(self) -> None:
        """Add them to `.grad`, in the order in which backward reached them."""
        with torch.no_grad():
            while self._products:
                weight, *factors = self._products.popleft()
                gradient = _weight_gradient(*factors).to(weight.dtype)
                weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)


class Linear(nn.Linear):
    """x @ weight.T, plus a bias if it has one; its memory is not initialized."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool = False) -> None:
        self.later: Later | None = None
        super().__init__(in_features, out_features, bias=bias)

    def reset_parameters(self) -> None:
        """Weights come from a file or from `Part.initialize`."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        product: Tensor = _Product.apply(x, self.weight, self)  # type: ignore[no-untyped-call]
        # Some layers have no bias, which the class of torch does not say.
        bias: Tensor | None = self.bias
        return product if bias is None else product + bias.to(product.dtype)


@contextmanager
def deferred_weights(part: nn.Module) -> Iterator[Later]:
    """A backward inside leaves the weight gradients of the blocks' linear layers to `run()` of what this gives.

    Norms, biases, embeddings and the head get theirs at once: the gradients of a microbatch's logits would wait with
    the head's. The sums are the same to the last bit.
    """
    layers = [module for name, module in part.named_modules() if isinstance(module, Linear) and name != _HEAD]
    later = Later()
    for layer in layers:
        layer.later = later
    try:
        yield later
    finally:
        for layer in layers:
            layer.later = None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layer: Linear) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layer = layer
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        layer: Linear = ctx.layer
        x_needed, weight_needed, _ = ctx.needs_input_grad
        weight_gradient = None
        if weight_needed and layer.later is not None:
            layer.later.add(layer.weight, x, gradient)
        elif weight_needed:
            weight_gradient = _weight_gradient(x, gradient).to(weight.dtype)
        # Cast again rather than kept: under autocast every microbatch under way would hold a copy of the weights.
        return gradient @ weight.to(gradient.dtype) if x_needed else None, weight_gradient, None


def _weight_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    return gradient.flatten(0, -2).mT @ x.flatten(0, -2)
