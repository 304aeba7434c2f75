import json
from pathlib import Path

import pytest

from geotrain.cli._output import print_json


def test_json_keeps_the_order_and_every_bit_and_has_no_infinity(capsys: pytest.CaptureFixture[str]):
    print_json({"b": 0.1 + 0.2, "a": [1, (float("inf"), float("nan"))], "name": "µ"})
    out = capsys.readouterr().out
    assert list(json.loads(out).items()) == [("b", 0.1 + 0.2), ("a", [1, [None, None]]), ("name", "µ")]
    assert out.startswith('{\n  "b": 0.30000000000000004,\n')


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "missing", "--chart", "@"],
        ["compare-runs", "missing", "missing", "--picture", "@"],
        ["compare-runs", "missing", "missing", "--trace", "@"],
        ["plan", "missing", "missing", "-o", "@"],
        ["plan", "missing", "missing", "--chart", "@"],
        ["plan", "missing", "missing", "--report", "@"],
        ["prefill", "calibrate", "missing", "--write", "@"],
        ["prefill", "simulate", "missing", "azure-code", "--report", "@"],
        ["prefill", "simulate", "missing", "azure-code", "--trace-out", "@"],
        ["schedule", "missing", "--out", "@"],
        ["simulate", "missing", "--report", "@"],
        ["simulate", "missing", "--timeline", "@"],
        ["simulate", "missing", "--trace", "@"],
        ["validate", "missing", "--calibrate", "@"],
        ["validate", "missing", "--chart", "@"],
        ["wan", "bench", "missing", "--between", "a,b", "--chart", "@"],
        ["wan", "probe", "127.0.0.1:1", "--insecure", "--chart", "@"],
        ["whatif", "missing", "missing", "--vary", "wan.default.rtt=1ms", "--chart", "@"],
        ["whatif", "missing", "missing", "--vary", "wan.default.rtt=1ms", "--csv", "@"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_written_is_refused_before_anything_else(
    geotrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    for where, reason in ((".", "is a directory"), ("file/below", "a part of the path is a file")):
        answer = geotrain(*[argument.replace("@", where) for argument in arguments])
        assert (answer.exit_code, answer.out) == (2, "")
        assert answer.err.startswith(f"error: {where}: ") and reason in answer.err


WHATIF = ["whatif", "cluster.yaml", "job.yaml", "--vary", "wan.default.rtt=1ms"]
READ_AND_WRITTEN = [
    ["compare", "plan.yaml", "--chart", "@"],
    ["compare-runs", "plan.yaml", "run", "--picture", "@"],
    ["compare-runs", "plan.yaml", "run", "--trace", "@"],
    ["plan", "cluster.yaml", "job.yaml", "-o", "@"],
    ["plan", "cluster.yaml", "job.yaml", "--chart", "@"],
    ["plan", "cluster.yaml", "job.yaml", "--report", "@"],
    ["prefill", "simulate", "plan.yaml", "azure-code", "--report", "@"],
    ["prefill", "simulate", "plan.yaml", "azure-code", "--trace-out", "@"],
    ["schedule", "plan.yaml", "-o", "@"],
    ["simulate", "plan.yaml", "--report", "@"],
    ["simulate", "plan.yaml", "--timeline", "@"],
    ["simulate", "plan.yaml", "--trace", "@"],
    ["wan", "bench", "cluster.yaml", "--between", "a,b", "--chart", "@"],
    ["wan", "probe", "127.0.0.1:1", "--insecure", "--write", "cluster.yaml", "--link", "a,b", "--chart", "@"],
    [*WHATIF, "--chart", "@"],
    [*WHATIF, "--csv", "@"],
    [*WHATIF, "--resume", "@"],
]


@pytest.mark.parametrize("arguments", READ_AND_WRITTEN, ids=" ".join)
@pytest.mark.parametrize("name", ["cluster.yaml", "./sub/../cluster.yaml", "link.yaml", "hard.yaml"])
def test_no_command_overwrites_what_it_reads(
    geotrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], name: str
):
    """Also not a file that the plan names, nor by another name."""
    assert geotrain("init", tmp_path).exit_code == 0
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("link.yaml").symlink_to("cluster.yaml")
    Path("hard.yaml").hardlink_to("cluster.yaml")
    before = {path: path.read_bytes() for path in tmp_path.glob("*.yaml")}
    answer = geotrain(*[argument.replace("@", name) for argument in arguments])
    assert (answer.exit_code, answer.out) == (2, "")
    assert answer.err == (
        f"error: {Path(name)}: would be overwritten, and is read as cluster.yaml: name another file to write\n"
    )
    assert {path: path.read_bytes() for path in tmp_path.glob("*.yaml")} == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "in.csv", "--calibrate", "in.csv"],
        ["validate", "in.csv", "--chart", "in.csv"],
        ["validate", "--efficiency", "in.csv", "--chart", "in.csv"],
        ["prefill", "calibrate", "in.csv", "--write", "in.csv"],
        ["prefill", "calibrate", "in.csv", "--table-out", "in.csv"],
        ["prefill", "simulate", "plan.yaml", "in.csv", "--report", "in.csv"],
        ["prefill", "simulate", "plan.yaml", "azure-code", "--times", "in.csv", "--report", "in.csv"],
    ],
    ids=" ".join,
)
def test_no_table_is_overwritten_by_what_is_made_of_it(
    geotrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
):
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("name\n")
    answer = geotrain(*arguments)
    assert (answer.exit_code, answer.out) == (2, "")
    assert answer.err == "error: in.csv: would be overwritten, and is read as in.csv: name another file to write\n"
    assert Path("in.csv").read_text() == "name\n"


def test_two_outputs_are_two_files(geotrain, example: Path):
    answer = geotrain(
        "simulate", example / "plan.yaml", "--trace", example / "a", "--report", example / "x" / ".." / "a"
    )
    assert (answer.exit_code, answer.out) == (2, "")
    assert answer.err.endswith("a: would be written twice: name a file for each\n")
