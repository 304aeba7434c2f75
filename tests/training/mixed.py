"""Two stages in bf16: `python -m tests.training.mixed` prints as JSON how far gradients are from those of fp32.

A process of its own, because on some CPUs oneDNN has to be told before it loads which instructions bf16 may use.
"""

import json
import sys

import torch

from geotrain.training.compute import TorchCompute
from geotrain.training.learner import parameters_of
from tests.model.tiny import config, filled, tokens


def gradients(precision: torch.dtype, *, split: bool) -> dict[str, torch.Tensor]:
    shape = config()
    ids = tokens(shape, 2, 9).numpy()
    compute = TorchCompute(
        {0: filled(shape, last=1, heads=False), 1: filled(shape, first=1, embeds=False)},
        lambda step, microbatch: (ids[:, :-1], ids[:, 1:]),
        tokens_per_step=16,
        device=torch.device("cpu"),
        parcel=precision,
        precision=precision,
    )
    compute.begin(0)
    given = compute.forward(0, 0, None, keep=True)
    assert given is not None and given.dtype == precision
    compute.forward(1, 0, given, keep=False)
    compute.recompute(1, 0)
    back = compute.backward_input if split else compute.backward
    given = back(1, 0, None)
    assert given is not None and given.dtype == precision
    back(0, 0, given)
    if split:
        compute.backward_weight(0, 0)
        compute.backward_weight(1, 0)
    found = {name: parameter.grad for name, parameter in parameters_of(compute.parts).items()}
    assert all(gradient is not None and gradient.dtype == torch.float32 for gradient in found.values())
    return {name: gradient for name, gradient in found.items() if gradient is not None}


def main() -> None:
    expected = gradients(torch.float32, split=False)
    whole, split = (gradients(torch.bfloat16, split=split) for split in (False, True))
    gaps = {name: float((whole[name] - one).norm() / one.norm()) for name, one in expected.items()}
    same = all(torch.equal(split[name], whole[name]) for name in expected)
    sys.stdout.write(json.dumps({"furthest": max(gaps.values()), "split is whole": same}))


if __name__ == "__main__":
    main()
