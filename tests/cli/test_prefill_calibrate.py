from pathlib import Path

import pytest
import yaml

from geotrain.model import weights
from geotrain.prefill.calibration import Calibrations
from tests.model.tiny import config, filled

TABLE = """model,gpu,tensor_parallel,new_tokens,cached_tokens,milliseconds
small,a100,1,100,0,20
small,a100,1,200,0,30
small,a100,1,400,0,50
small,a100,1,100,100,20
small,h100,1,100,0,10
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "times.csv"
    path.write_text(TABLE)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    shape = config(max_position_embeddings=128)
    directory = tmp_path / "Small"
    directory.mkdir()
    weights.save(directory, shape, filled(shape).named_parameters())
    return directory


def test_published_times_are_shown_against_what_is_predicted(geotrain):
    answer = geotrain("prefill", "calibrate")
    assert answer.exit_code == 0
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert lines[0] == "llama-3.1-8b on a100-80gb"
    assert lines[1] == "new tokens cached measured predicted error held out"
    assert "2,048 0 125 ms 125.9 ms +0.7% +1.0%" in lines
    assert "11 fits rows mean error worst 95% within" in lines
    assert "llama-3.1-70b on a100-80gb x 4 7 0.4% 0.8% 1.01 x" in lines
    assert any(line.startswith("source: Splitwise") for line in lines)
    assert max(map(len, answer.out.splitlines())) <= 80


def test_json_has_the_coefficients_their_error_and_every_point(geotrain):
    answer = geotrain("prefill", "calibrate", "--model", "Llama-3.1-8B", "--gpu", "h100", "--json").json
    (found,) = answer["calibrations"]
    assert (found["model"], found["gpu"], found["tensor_parallel"], found["rows"]) == ("llama-3.1-8b", "h100", 1, 7)
    assert found["unknown"] == ["per_cached_s"] and found["per_cached_s"] == 0
    assert [point["new_tokens"] for point in found["points"]] == [512 << power for power in range(7)]
    for point in found["points"]:
        new = point["new_tokens"]
        predicted_s = found["fixed_s"] + found["per_token_s"] * new + found["per_pair_s"] * new**2
        assert point["predicted_s"] == pytest.approx(predicted_s)
        assert point["error"] == pytest.approx(predicted_s / point["measured_s"] - 1)
    errors = [abs(point["held_out_error"]) for point in found["points"]]
    assert found["error"] == pytest.approx({"mean": sum(errors) / 7, "worst": max(errors)}, rel=1e-4)
    assert answer["written"] == {}


def test_a_table_is_fitted_and_written(geotrain, table: Path, tmp_path: Path):
    answer = geotrain("prefill", "calibrate", table, "--gpu", "a100", "--write", tmp_path / "prefill.yaml")
    assert answer.exit_code == 0
    assert f"fits: {tmp_path / 'prefill.yaml'}" in answer.out
    assert answer.err == "note: the GPU 'a100' is not in the catalog: did you mean 'a100-40gb' or 'a100-80gb'?\n"
    (found,) = Calibrations.load(tmp_path / "prefill.yaml").calibrations
    assert (found.fixed_s, found.per_token_s) == pytest.approx((0.010, 1e-4), rel=1e-4)
    assert yaml.safe_load((tmp_path / "prefill.yaml").read_text())["calibrations"][0]["source"] == str(table)


def test_a_model_is_measured_here(geotrain, model: Path, tmp_path: Path):
    files = {"table": tmp_path / "times.csv", "fits": tmp_path / "prefill.yaml"}
    options = ("--table-out", files["table"], "--write", files["fits"], "--repeat", 2, "--json")
    answer = geotrain("prefill", "calibrate", "--measure", model, *options).json
    assert answer["written"] == {what: str(path) for what, path in files.items()}
    (found,) = answer["calibrations"]
    assert (found["model"], found["gpu"], found["tensor_parallel"]) == ("small", "cpu", 1)
    assert found["rows"] == 2 * len(found["points"]) == 2 * (7 + 6 + 6 + 5)
    assert found["unknown"] == []
    again = geotrain("prefill", "calibrate", files["table"], "--json").json
    assert again["calibrations"] == answer["calibrations"]
    (kept,) = Calibrations.load(files["fits"]).calibrations
    assert kept.model_dump(mode="json") == {name: value for name, value in found.items() if name != "points"}


def test_what_is_measured_may_be_named_and_cut_short(geotrain, model: Path):
    names = ("--model", "llama-3.1-8b", "--gpu", "H100", "--device", "cpu")
    answer = geotrain("prefill", "calibrate", "--measure", model, *names, "--longest", 32, "--repeat", 1, "--json")
    (found,) = answer.json["calibrations"]
    assert (found["model"], found["gpu"]) == ("llama-3.1-8b", "h100")
    assert max(point["new_tokens"] + point["cached_tokens"] for point in found["points"]) == 32


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(["none.csv"], "none.csv: no such file", id="no-file"),
        pytest.param(
            ["--gpu", "a100"],
            "--gpu is 'a100' and the rows have none of it: did you mean 'a100-80gb'?",
            id="other-gpu",
        ),
        pytest.param(
            ["--tensor-parallel", 3],
            "--tensor-parallel is 3 and the rows have none of it: known are 1, 2, 4, 8",
            id="other-degree",
        ),
        pytest.param(["--repeat", 3], "--repeat goes with --measure DIR, which is not given", id="nothing-to-repeat"),
        pytest.param(
            ["times.csv", "--measure", "Small"], "give the table times.csv or --measure Small, not both", id="both"
        ),
        pytest.param(["--measure", "none"], "none/config.json: no such file", id="no-model"),
        pytest.param(
            ["--measure", "Small", "--longest", 129],
            "--longest is 129 and must be at most 128, max_position_embeddings of Small",
            id="too-long",
        ),
        pytest.param(
            ["--measure", "Small", "--tensor-parallel", 2],
            "--tensor-parallel is 2 and must be 1 with --measure: one device is timed",
            id="several-devices",
        ),
        pytest.param(
            ["--write", "times.csv/fits.yaml"],
            "times.csv/fits.yaml: cannot be written: a part of the path is a file",
            id="nowhere-to-write",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    geotrain, table: Path, model: Path, monkeypatch: pytest.MonkeyPatch, options: list[object], sentence: str
):
    monkeypatch.chdir(table.parent)
    answer = geotrain("prefill", "calibrate", *options)
    assert (answer.exit_code, answer.out, answer.err) == (2, "", f"error: {sentence}\n")
