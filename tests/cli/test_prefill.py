"""`geotrain prefill`, from the outside."""

import json
from pathlib import Path

import pytest

CONTRACT = {
    "gpu_utilization_before", "gpu_utilization_after", "ttft_s", "goodput_rps", "slo_attainment", "training_slowdown",
    "decision_us", "requests",
}  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Ten requests a second for four seconds."""
    path = tmp_path / "mine.csv"
    rows = [f"{number / 10},{400 + 37 * number % 900}" for number in range(41)]
    path.write_text("\n".join(["arrival_s,input_tokens", *rows]))
    return path


@pytest.fixture
def simulate(geotrain, example: Path):
    def run(trace: object, *options: object):
        return geotrain("prefill", "simulate", example / "plan.yaml", trace, *options)

    return run


def test_everything_a_person_asks_for(simulate, trace: Path, tmp_path: Path):
    report, picture = tmp_path / "out.html", tmp_path / "out.json"
    answer = simulate(trace, "--report", report, "--trace-out", picture)

    assert (answer.exit_code, answer.err) == (0, "")
    said = " ".join(answer.out.split())
    for words in ("trace mine at 10 requests/s, 41 requests", "GPU utilization ", " oracle ", "done within 2 s 41"):
        assert words in said
    assert f"report: {report}  (open it in a browser)" in answer.out
    assert f"trace:  {picture}  (open it at ui.perfetto.dev; steps " in answer.out
    assert report.read_text().startswith("<!DOCTYPE html>")
    assert any(event.get("cat") == "prefill" for event in json.loads(picture.read_text())["traceEvents"])


def test_json_is_the_contract(simulate, trace: Path):
    answer = simulate(trace, "--json").json

    assert answer.keys() >= CONTRACT
    assert list(answer["baselines"]) == ["none", "reactive", "fixed", "oracle"]
    for outcome in (answer, *answer["baselines"].values()):
        assert outcome.keys() >= CONTRACT
        assert sum(outcome["requests"][end] for end in ("done", "rejected", "failed")) == 41
    assert answer["gpu_utilization_after"] > answer["gpu_utilization_before"] > 0
    assert answer["decision_us"]["mean"] > 0


def test_the_same_again_but_for_the_clock(simulate, trace: Path):
    options = ("--jitter", "step=2%,compute=1%", "--only-ours", "--json")
    first, again, other = (
        simulate(trace, *options, "--seed", seed).json | {"decision_us": None, "dedicated": None} for seed in (1, 1, 2)
    )

    assert first == again != other
    assert first["baselines"] == {}


@pytest.mark.parametrize(
    ("options", "rate_rps", "arrivals"),
    [
        pytest.param(["--rate", "x4"], 40, 41, id="times"),
        pytest.param(["--rate", "20/s"], 20, 41, id="rate"),
        pytest.param(["--duration", "2 s"], 10, 20, id="cut"),
        pytest.param(["--rate", "20/s", "--duration", "3 s"], 20, 60, id="again-and-again"),
    ],
)
def test_rate_and_duration_of_a_trace(simulate, trace: Path, options: list[str], rate_rps: float, arrivals: int):
    answer = simulate(trace, *options, "--only-ours", "--json").json

    assert answer["rate_rps"] == pytest.approx(rate_rps, rel=0.06)
    assert answer["requests"]["done"] + answer["requests"]["rejected"] == pytest.approx(arrivals, abs=1)


def test_the_most_is_more_than_the_bubbles_hold(simulate, trace: Path):
    answer = simulate(trace, "--rate", "max", "--duration", "3 s", "--slo", "500 ms", "--json").json

    assert answer["requests"]["rejected"] > 0
    assert answer["gpu_utilization_after"] > answer["baselines"]["fixed"]["gpu_utilization_after"]


def test_in_bad_weather_no_request_is_lost(simulate, trace: Path):
    answer = simulate(
        trace, "--only-ours", "--rate", "x4", "--jitter", "compute=3%,wan=10%,kind=heavy", "--spell",
        "wan x2 from 1 s for 2 s", "--kill", "0@0.2s", "--kill", "5@0.5s", "--json",
    ).json  # fmt: skip

    assert sum(answer["requests"][end] for end in ("done", "rejected", "failed")) == 41


def test_a_trace_can_be_made_up_by_name(simulate):
    answer = simulate("azure-conversation", "--duration", "2 s", "--only-ours", "--slo", "1 s", "--degree", 1, "--json")

    assert answer.json["trace"] == "azure-conversation (made up)"
    assert answer.json["slo_s"] == 1.0


def test_requests_that_name_no_model_take_turns(simulate, trace: Path):
    models = ("--model", "llama-3.1-8b", "--model", "qwen2.5-7b")
    answer = simulate(trace, *models, "--only-ours", "--json").json

    assert answer["models"] == ["llama-3.1-8b", "qwen2.5-7b"]
    assert answer["requests"]["done"] == 41


def test_times_come_from_a_calibration(geotrain, simulate, trace: Path, tmp_path: Path):
    times = tmp_path / "prefill.yaml"
    times.write_text(
        "calibrations: [{model: llama-3.1-8b, gpu: a100-80gb, tensor_parallel: 1, fixed_s: 1.9, per_token_s: 1e-5}]"
    )
    quick, slow = (simulate(trace, "--only-ours", "--json", *more).json for more in ((), ("--times", times)))

    assert quick["slo_attainment"] > 0.9 > slow["slo_attainment"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(["--rate", "4"], "--rate is '4' and must be like 'x4', '20/s' or 'max'", id="rate"),
        pytest.param(["--rate", "x0"], "--rate is 'x0' and must be like", id="no-rate"),
        pytest.param(["--duration", "-1 s"], "--duration is '-1 s' and must be above 0", id="duration"),
        pytest.param(["--slo", "soon"], "--slo is 'soon' and must be a time such as", id="slo"),
        pytest.param(["--guard", "1 mile"], "--guard is '1 mile' and has the unknown unit", id="guard"),
        pytest.param(
            ["--model", "lama-3.1-8b"], "--model lama-3.1-8b: is not in the model catalog: did you", id="model"
        ),
        pytest.param(["--kill", "3"], "--kill is '3' and must be SLOT@TIME, like '3@60s'", id="kill"),
        pytest.param(["--kill", "3@soon"], "--kill is '3@soon' with a time that must be a time", id="kill-time"),
        pytest.param(["--kill", "99@1s"], "PLAN: --kill names slot 99, which must be one of 0 to 11", id="kill-slot"),
        pytest.param(["--spell", "rain"], "--spell is 'rain' and must be like", id="spell"),
        pytest.param(
            ["--spell", "slot 99 x2 from 0 s for 1 s"], "PLAN: a spell is on slot 99 and must", id="spell-slot"
        ),
        pytest.param(["--jitter", "lots"], "--jitter compute is 'lots' and must be a share", id="jitter"),
        pytest.param(["--times", "none.yaml"], "none.yaml: no such file", id="times"),
        pytest.param(["--schedule", "best"], "PLAN: schedule is 'best'", id="schedule"),
        pytest.param(["--report", "DIR"], "DIR: is a directory, expected a file to write", id="report"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(
    simulate, trace: Path, example: Path, tmp_path: Path, options: list[str], sentence: str
):
    answer = simulate(trace, *(tmp_path if word == "DIR" else word for word in options))

    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    sentence = sentence.replace("PLAN", str(example / "plan.yaml")).replace("DIR", str(tmp_path))
    assert answer.err.startswith(f"error: {sentence}")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none.csv", "none.csv: no such file"),
        ("azure", "azure: no such file; 'azure' is not a known trace: did you mean 'azure-conversation' or"),
    ],
)
def test_a_trace_that_is_not_there_is_named(simulate, name: str, sentence: str):
    answer = simulate(name)

    assert (answer.exit_code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {sentence}")


def test_alone_it_shows_its_help(geotrain):
    assert geotrain("prefill").out == geotrain("prefill", "--help").out
    for what in ("simulate", "calibrate"):
        assert f"geotrain prefill {what} " in geotrain("prefill", what, "--help").out
