"""Every way to get the files wrong ends in exit code 2 and one sentence that names file, field, value and limit."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.plan import Plan
from tests.editing import replace

Spoil = Callable[[Path], object]


def change(file: str, old: str, new: str) -> Spoil:
    return lambda directory: replace(directory / file, old, new)


def write(file: str, text: str) -> Spoil:
    return lambda directory: (directory / file).write_text(text)


def remove(file: str) -> Spoil:
    return lambda directory: (directory / file).unlink()


CASES = [
    pytest.param(
        change("plan.yaml", "dc: west", "dc: wset"),
        "plan.yaml: stages[3].dc names the unknown data center 'wset': did you mean 'west'?",
        id="unknown-dc",
    ),
    pytest.param(
        change("cluster.yaml", "pair_cap: 5 Gbit/s", "pair_cap: -4 Gbit/s"),
        "cluster.yaml: wan.default.pair_cap is '-4 Gbit/s' and must be above 0",
        id="negative-rate",
    ),
    pytest.param(
        change("plan.yaml", "{dc: west, layers: 1}", "{dc: west, layers: 2}"),
        "plan.yaml: stages hold 5 layers in all and must hold the 4 of the model 'gpt-a'",
        id="layers-do-not-add-up",
    ),
    pytest.param(
        change("cluster.yaml", "rtt: 40 ms", "rtt: 40 mss"),
        "cluster.yaml: wan.default.rtt is '40 mss' and has the unknown unit 'mss': did you mean \"40 ms\"?",
        id="unit-typo",
    ),
    pytest.param(
        change("cluster.yaml", "rtt: 40 ms", f"rtt: {10**400}"),
        "cluster.yaml: wan.default.rtt is 100000000000000000...0000000000000000000 and must be at most 1e+30",
        id="time-beyond-floats",
    ),
    pytest.param(
        change("cluster.yaml", "pair_cap: 5 Gbit/s", "pair_cap: 1.0e-308"),
        "cluster.yaml: wan.default.pair_cap is 1e-308 and must be at least 1e-30, or 0",
        id="rate-too-small-to-divide-by",
    ),
    pytest.param(
        change("job.yaml", "microbatches: 4", f"microbatches: {10**400}"),
        "job.yaml: microbatches is 100000000000000000...0000000000000000000 and must be at most 1000000000000000",
        id="number-beyond-counting",
    ),
    pytest.param(remove("plan.yaml"), "plan.yaml: no such file", id="missing-file"),
    pytest.param(
        remove("cluster.yaml"),
        "plan.yaml: cluster is 'cluster.yaml' and must be a file beside the plan: cluster.yaml does not exist",
        id="missing-nested-file",
    ),
    pytest.param(
        write("job.yaml", "model: {name: gpt-a\n"),
        "job.yaml: not valid YAML: line 2, column 1: while parsing a flow mapping, "
        "expected ',' or '}', but got '<stream end>'",
        id="yaml-syntax",
    ),
    pytest.param(write("job.yaml", ""), "job.yaml: is empty", id="empty-file"),
    pytest.param(
        write("job.yaml", "model: gpt-a\nmodel: gpt-b\n"),
        "job.yaml: not valid YAML: line 2, column 1: the key 'model' is given twice",
        id="duplicate-key",
    ),
    pytest.param(
        change("plan.yaml", "schedule: atlas", "shedule: atlas"),
        "plan.yaml: shedule is not a known field: did you mean 'schedule'?",
        id="unknown-field",
    ),
    pytest.param(
        change("plan.yaml", "schedule: atlas", "schedule: gpip"),
        "plan.yaml: schedule is 'gpip' and must be 'gpipe', '1f1b', 'interleaved', 'varuna', 'zero-bubble', "
        "'zero-bubble-2p', 'atlas' or 'auto': did you mean 'gpipe'?",
        id="unknown-schedule",
    ),
    pytest.param(
        change("cluster.yaml", "nodes: 6", "nodes: six"),
        "cluster.yaml: datacenters[0].nodes is 'six' and must be a whole number",
        id="wrong-type",
    ),
    pytest.param(
        change("job.yaml", "microbatches: 4", "global_batch: 64\nmicrobatches: 4"),
        "job.yaml: microbatches is 4 and global_batch is 64: give only one of them",
        id="two-batch-sizes",
    ),
    pytest.param(
        change("plan.yaml", "tensor_parallel: 1", "tensor_parallel: 3"),
        "plan.yaml: tensor_parallel is 3 and must divide the model's 32 heads",
        id="tensor-parallel-does-not-divide",
    ),
    pytest.param(
        change("plan.yaml", "connections: auto", "connections: 0"),
        "plan.yaml: wan.connections is 0 and must be 'auto' or at least 1",
        id="no-connections",
    ),
    pytest.param(
        change("plan.yaml", "cells: 1", "cells: 2"),
        "plan.yaml: stages need 12 slots in 'east' (2 stages x 3 pipelines_per_cell x 2 cells), "
        "which has 6 slots of 1 GPU",
        id="does-not-fit",
    ),
]


@pytest.mark.parametrize(("spoil", "sentence"), CASES)
def test_loading_raises_the_sentence(example: Path, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, sentence: str):
    spoil(example)
    monkeypatch.chdir(example)
    with pytest.raises(InputError) as caught:
        Plan.load(Path("plan.yaml"))
    assert str(caught.value) == sentence


@pytest.mark.parametrize(("spoil", "sentence"), CASES)
def test_the_command_prints_it_and_nothing_else(example: Path, spoil: Spoil, sentence: str):
    spoil(example)
    command = [sys.executable, "-m", "geotrain", "simulate", "plan.yaml"]
    done = subprocess.run(command, cwd=example, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {sentence}\n")
