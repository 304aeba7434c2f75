"""One of two tensor-parallel processes: `python -m tests.model.rank RANK DIR` meets the other through DIR.

Prints as JSON how far outputs and gradients are from those of an uncut part, relative to their largest number, and how
often the two exchange something in a pass through one layer.
"""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import parallelize_module

from geotrain.model import Config, Later, Part, deferred_weights, loss, tensor_parallel_plan
from geotrain.training.gradients import complete, squared_norm
from tests.model.tiny import config, filled, gradients, tokens

CASES: dict[str, tuple[Config, dict[str, Any]]] = {
    "whole": (config(), {}),
    "middle": (config(), {"first": 1, "last": 2, "embeds": False, "heads": False}),
    "head only": (config(), {"first": 3, "embeds": False}),
    "tied, whole": (config(tie_word_embeddings=True), {}),
    "tied, first": (config(tie_word_embeddings=True), {"last": 1, "heads": False}),
    "qwen2, biases": (config(model_type="qwen2"), {}),
    "llama, biases": (config(attention_bias=True), {}),
    "qwen3, norms of heads": (config(model_type="qwen3"), {"first": 1, "embeds": False}),
    "tied, last": (config(tie_word_embeddings=True), {"first": 2, "embeds": False}),
}


def passes(part: Part, x: Tensor, *, deferred: bool) -> dict[str, Tensor]:
    """Output, loss, and the gradients of input and weights after two microbatches."""
    targets = tokens(part.config, 2, 7)
    found: dict[str, Tensor] = {}
    for microbatch in range(2):
        leaf = x[microbatch].clone().requires_grad_(x.is_floating_point())
        out = part(leaf)
        value = loss(out, targets) if part.heads else (out * torch.cos(torch.arange(out.numel())).view(out.shape)).sum()
        with deferred_weights(part) if deferred else nullcontext(Later()) as later:
            (value / out.shape[1]).backward()
        later.run()
        found |= {f"output {microbatch}": out.detach(), f"loss {microbatch}": value.detach()}
        if leaf.grad is not None:
            found |= {f"input gradient {microbatch}": leaf.grad}
    return found | gradients(part)


def difference(config: Config, cut: dict[str, Any], mesh: Any, *, deferred: bool) -> float:
    part, whole = filled(config, **cut), filled(config, **cut)
    parallelize_module(part, mesh, tensor_parallel_plan(part))
    assert any(isinstance(parameter, DTensor) for parameter in part.parameters())
    x = tokens(config, 2, 2, 7) if part.embeds else torch.randn(2, 2, 7, 16, generator=torch.manual_seed(3))
    expected, found = passes(whole, x, deferred=False), passes(part, x, deferred=deferred)
    assert expected.keys() == found.keys()
    complete(list(part.parameters()))
    norm = torch.tensor(squared_norm(list(part.parameters()), part=dist.get_rank()))
    dist.all_reduce(norm)
    expected["norm"], found["norm"] = torch.tensor(squared_norm(list(whole.parameters()), part=0)), norm
    full = {name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor for name, tensor in found.items()}
    return max(float((full[name] - expected[name]).abs().max() / expected[name].abs().max()) for name in expected)


def exchanges(mesh: Any) -> list[int]:
    """Of the forward and the backward of one layer."""
    part = filled(config(), first=1, last=2, embeds=False, heads=False)
    parallelize_module(part, mesh, tensor_parallel_plan(part))
    with CommDebugMode() as forward:
        out = part(torch.ones(1, 5, 16, requires_grad=True))
    with CommDebugMode() as backward:
        out.sum().backward()
    return [forward.get_total_counts(), backward.get_total_counts()]


def main(rank: int, directory: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{directory / 'meeting'}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    differences = {
        f"{name}, {'deferred' if deferred else 'at once'}": difference(*case, mesh, deferred=deferred)
        for name, case in CASES.items()
        for deferred in (False, True)
    }
    sys.stdout.write(json.dumps({"differences": differences, "exchanges": exchanges(mesh)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
