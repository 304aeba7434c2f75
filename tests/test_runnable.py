"""What `geotrain train` can run, and why not the rest: known without torch."""

import subprocess
import sys
from typing import Any

import pytest

from geotrain.errors import InputError
from geotrain.runnable import check_runnable, why_not_runnable
from tests.training.plans import MODEL, plan

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "replicas": ({"stages": ["east"], "replicas": [{"dc": "south", "cells": 1}]}, "the plan has replicas"),
    "layerwise": ({"job": {"recompute": "layerwise"}}, "recompute is 'layerwise'"),
    "selective": ({"job": {"recompute": "selective"}}, "recompute is 'selective'"),
    "fp16": ({"job": {"precision": "fp16"}}, "precision is 'fp16'"),
    "gelu": ({"job": {"model": MODEL | {"layers": 2, "activation": "gelu"}}}, "only the Llama family"),
    "odd heads": ({"job": {"model": MODEL | {"layers": 2, "head_dim": 7}}}, "head_dim is 7"),
    "heads that do not divide": (
        {"job": {"model": MODEL | {"layers": 2, "hidden": 34, "head_dim": 8}}},
        "hidden is 34",
    ),
    "kv heads": ({"tensor_parallel": 4, "gpus_per_node": 4}, "must divide the model's 2 kv_heads"),
    "parcels": ({"job": {"profile": {"boundary_bytes": "5 GiB"}}}, "at most 4 GiB can cross the WAN"),
    "names": ({"stages": ["e" * 33, "south"]}, "its name must have at most 32 bytes"),
}


def test_a_plan_that_can_be_trained_has_no_reason_against_it():
    assert why_not_runnable(plan()) == []
    check_runnable(plan())


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_says_why(case: str):
    choices, said = REFUSED[case]
    (reason,) = why_not_runnable(plan(**choices))
    assert said in reason


def test_all_reasons_are_one_sentence():
    refused = plan(["east"], replicas=[{"dc": "south", "cells": 1}], job={"recompute": "layerwise"})
    with pytest.raises(InputError, match=r"recompute is 'layerwise'.*; the plan has replicas"):
        check_runnable(refused)


def test_emulated_compute_needs_neither_the_model_nor_its_precision():
    odd = {"precision": "fp16", "model": MODEL | {"layers": 2, "activation": "gelu"}}
    assert why_not_runnable(plan(job=odd), emulated=True) == []
    assert len(why_not_runnable(plan(job=odd | {"recompute": "layerwise"}), emulated=True)) == 1


def test_asking_does_not_import_torch():
    script = "import sys, geotrain.runnable; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
