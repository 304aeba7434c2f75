"""Every way to get the files wrong ends in exit code 2 and one sentence that names file, field, value and limit."""

import os
import re
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


READERS = [
    ["compare", "@"],
    ["compare-runs", "@", "run"],
    ["launch", "@", "--on", "local", "--out", "run", "--dry-run"],
    ["plan", "@", "job.yaml"],
    ["plan", "cluster.yaml", "@"],
    ["prefill", "calibrate", "@"],
    ["prefill", "simulate", "@", "azure-code"],
    ["prefill", "simulate", "plan.yaml", "@"],
    ["prefill", "simulate", "plan.yaml", "azure-code", "--times", "@"],
    ["schedule", "@"],
    ["testbed", "up", "@"],
    ["validate", "@"],
    ["validate", "--efficiency", "@"],
    ["wan", "bench", "@", "--between", "east,south"],
    ["wan", "probe", "127.0.0.1:1", "--insecure", "--write", "@", "--link", "east,south"],
    ["whatif", "@", "job.yaml", "--story", "knee"],
    ["whatif", "cluster.yaml", "@", "--story", "knee"],
]
"""Commands that read a file, which is the @."""

ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 20))
CONTENTS = {
    "empty": b"",
    "binary": bytes(range(256)),
    "list": b"[1, 2]",
    "number": b"42",
    "nested": b"a: " + b"[" * 5000 + b"]" * 5000,
    "aliases": ALIASES.encode(),
    "numbers": b"a: [.nan, .inf, 1.0e+308, -1, " + b"9" * 5000 + b"]",
}


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_every_command_says_in_a_sentence_what_is_wrong_with_a_file(
    geotrain, example: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
):
    monkeypatch.chdir(example)
    Path("directory.d").mkdir()
    for name, content in CONTENTS.items():
        Path(f"{name}.yaml").write_bytes(content)
    for file in ("missing.yaml", "directory.d", *(f"{name}.yaml" for name in CONTENTS)):
        answer = geotrain(*[argument.replace("@", file) for argument in arguments])
        assert (answer.exit_code, answer.out) == (2, ""), f"{file}: {answer}"
        assert answer.err.startswith("error: ") and file in answer.err and answer.err.count("\n") == 1
        assert len(answer.err) < 600 and "unexpected" not in answer.err


def test_a_trace_of_too_many_requests_is_refused_before_it_takes_the_memory(
    geotrain, example: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(example)
    asked = ["--rate", "1000000000/s", "--duration", "1 h", "--only-ours"]
    answer = geotrain("prefill", "simulate", "plan.yaml", "azure-code", *asked)
    assert (answer.exit_code, answer.out) == (2, "")
    assert answer.err == (
        "error: plan.yaml: azure-code (made up): 1e+09 requests/s for 3600 s are 3.6e+12 and must be at most 5e+06: "
        "a shorter --duration would do\n"
    )


@pytest.mark.parametrize("microbatches", [10**9, 10**15])
def test_a_step_of_too_many_microbatches_is_refused_before_it_takes_the_memory(
    geotrain, example: Path, monkeypatch: pytest.MonkeyPatch, microbatches: int
):
    replace(example / "job.yaml", "microbatches: 4", f"microbatches: {microbatches}")
    monkeypatch.chdir(example)
    for arguments in (["simulate"], ["compare"], ["schedule"], ["simulate", "--schedule", "auto"]):
        answer = geotrain(arguments[0], "plan.yaml", *arguments[1:])
        assert (answer.exit_code, answer.out) == (2, ""), answer
        assert answer.err.startswith("error: ") and str(microbatches)[:4] in answer.err.replace(",", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "PIPE"),
        ("plan", "PIPE", "job.yaml"),
        ("plan", "cluster.yaml", "PIPE"),
        ("compare", "PIPE"),
        ("validate", "PIPE"),
        ("prefill", "simulate", "plan.yaml", "PIPE"),
        ("prefill", "calibrate", "PIPE"),
        ("schedule", "PIPE"),
        ("whatif", "PIPE", "job.yaml", "--vary", "cluster.wan.default.rtt=10 ms"),
        ("compare-runs", "PIPE", "plan.yaml"),
        ("reproduce", "PIPE"),
        ("launch", "PIPE", "--on", "local", "--out", "run"),
        ("testbed", "up", "PIPE"),
        ("data", "PIPE", "--out", "tokens"),
        ("data", "job.yaml", "--out", "tokens", "--tokenizer", "PIPE"),
    ],
    ids=" ".join,
)
def test_a_pipe_in_the_place_of_a_file_keeps_no_command_waiting(
    geotrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
):
    geotrain("init", tmp_path)
    os.mkfifo(tmp_path / "PIPE")
    monkeypatch.chdir(tmp_path)
    answer = geotrain(*arguments)
    assert (answer.exit_code, answer.out) == (2, "")
    assert re.fullmatch(r"error: [^\n]*PIPE[^\n]*\n", answer.err)
