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
