import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.editing import replace


@pytest.fixture(autouse=True)
def beside_the_plan(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named as a person in that directory names them."""
    monkeypatch.chdir(example)


def test_the_command_prints_a_summary_and_says_what_it_wrote(example: Path):
    command = [
        sys.executable,
        "-m",
        "geotrain",
        "simulate",
        "plan.yaml",
        "--report",
        "step.html",
        "--trace",
        "step.json",
    ]
    done = subprocess.run(command, cwd=example, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("gpt-a (4 layers, 1.22B parameters) in 4 stages over 3 data centers")
    words = {line.split("  ")[0] for line in lines}
    assert words >= {"step time", "lower bound", "GPU utilization", "tokens/s", "GPUs", "Stages", "WAN links, per step"}
    assert lines[-2:] == [
        "report: step.html  (open it in a browser)",
        "trace:  step.json  (open it at ui.perfetto.dev)",
    ]
    assert (example / "step.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads((example / "step.json").read_text())["traceEvents"]


def test_json_has_the_names_and_types_of_the_contract(geotrain):
    answer = geotrain("simulate", "plan.yaml", "--json")
    figures = answer.json
    contract = {
        "step_time_s": float,
        "lower_bound_s": float,
        "gpu_utilization": float,
        "bubble_fraction": float,
        "tokens_per_s": float,
        "gpus": int,
        "peak_memory_bytes": list,
        "wan": list,
        "schedule": str,
    }
    assert (answer.exit_code, answer.err) == (0, "")
    assert {name: type(figures[name]) for name in contract} == contract
    assert (figures["schedule"], figures["gpus"], len(figures["peak_memory_bytes"])) == ("atlas", 12, 4)
    assert figures["gpu_utilization"] + figures["bubble_fraction"] == pytest.approx(1)
    assert 0 < figures["lower_bound_s"] <= figures["step_time_s"]
    assert figures["tokens_per_s"] == pytest.approx(3 * 4 * 4096 / figures["step_time_s"])


def test_each_link_and_direction_carries_every_microbatch_once(geotrain):
    links = geotrain("simulate", "plan.yaml", "--json").json["wan"]
    assert sorted((link["from"], link["to"], link["bytes"]) for link in links) == [
        ("east", "south", 3 * 4 * 33_554_432),
        ("south", "east", 3 * 4 * 33_554_432),
        ("south", "west", 3 * 4 * 33_554_432),
        ("west", "south", 3 * 4 * 33_554_432),
    ]
    assert all(0 < link["busy_fraction"] < 1 for link in links)


def test_same_inputs_same_bytes_out(geotrain, example: Path):
    def run() -> tuple[str, str, str]:
        out = geotrain("simulate", "plan.yaml", "--json", "--report", "a.html", "--trace", "a.json").out
        return out, (example / "a.html").read_text(), (example / "a.json").read_text()

    assert run() == run()


def test_files_go_into_directories_that_are_made(geotrain, example: Path):
    answer = geotrain("simulate", "plan.yaml", "--json", "--report", "new/place/step.html")
    assert answer.json["gpus"] == 12  # and nothing but JSON is printed
    assert [path.name for path in (example / "new" / "place").iterdir()] == ["step.html"]


@pytest.mark.parametrize("option", ["--report", "--trace"])
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("job.yaml/step.html", id="below-a-file"),
        pytest.param("a-directory", id="a-directory"),
        pytest.param(".", id="here"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_sentence(geotrain, example: Path, option: str, path: str):
    (example / "a-directory").mkdir()
    before = sorted(example.rglob("*"))
    answer = geotrain("simulate", "plan.yaml", option, path)
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith(f"error: {path}: ") and ("written" in answer.err or "a directory" in answer.err)
    assert sorted(example.rglob("*")) == before


def use_gpu(example: Path, gpu: str) -> None:
    cluster = example / "cluster.yaml"
    cluster.write_text(cluster.read_text().replace("gpu: a100-80gb", f"gpu: {gpu}"))


def use_layers(example: Path, per_stage: int) -> None:
    replace(example / "job.yaml", "name: gpt-a,", f"name: gpt-a, layers: {4 * per_stage},")
    plan = example / "plan.yaml"
    plan.write_text(plan.read_text().replace("layers: 1}", f"layers: {per_stage}}}"))


def refused(geotrain) -> str:
    """The one line that says why."""
    answer = geotrain("simulate", "plan.yaml")
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith("error: plan.yaml: ")
    return str(answer.err).removeprefix("error: plan.yaml: ").rstrip("\n")


def test_a_stage_that_is_too_large_says_what_it_needs_and_what_there_is(geotrain, example: Path):
    use_gpu(example, "v100")
    use_layers(example, 16)
    replace(example / "job.yaml", "precision: bf16", "precision: fp16")
    assert refused(geotrain) == (
        "stage 0 needs 59.6 GiB per GPU, the v100 in 'east' has 32 GiB, of which 2 GiB are kept free: "
        "weights, gradients and optimizer 51.07 GiB, "
        "one microbatch in flight 32 MiB, workspace 8.5 GiB"
    )


def test_a_schedule_that_holds_too_many_microbatches_says_how_many(geotrain, example: Path):
    use_gpu(example, "v100")
    use_layers(example, 4)
    replace(example / "job.yaml", "precision: bf16", "precision: fp16")
    replace(example / "job.yaml", "recompute: full ", "recompute: none ")
    replace(example / "job.yaml", "microbatches: 4 ", "microbatches: 20 ")
    replace(example / "plan.yaml", "schedule: atlas", "schedule: gpipe")
    assert refused(geotrain) == (
        "schedule gpipe with 20 microbatches in flight on stage 0 needs 57.57 GiB per GPU, "
        "the v100 in 'east' has 32 GiB, of which 2 GiB are kept free: "
        "weights, gradients and optimizer 15.07 GiB, activations 42.5 GiB, workspace 0 B"
    )


def test_a_schedule_that_ignores_the_plans_cap_is_refused(geotrain, example: Path):
    replace(example / "plan.yaml", "schedule: atlas", "schedule: gpipe")
    replace(example / "plan.yaml", "max_in_flight: auto", "max_in_flight: 2")
    assert refused(geotrain) == "schedule gpipe holds 4 microbatches in flight on stage 0, max_in_flight is 2"


def test_a_precision_that_the_gpu_lacks_is_refused(geotrain, example: Path):
    use_gpu(example, "v100")
    assert refused(geotrain) == "precision 'bf16' is not supported by the GPU 'v100', which has fp16, fp32"


def test_a_plan_that_does_not_exist(geotrain):
    answer = geotrain("simulate", "nonexistent.yaml")
    assert (answer.exit_code, answer.out, answer.err) == (2, "", "error: nonexistent.yaml: no such file\n")


def test_interleaved_microbatches_need_not_be_a_multiple_of_the_stages(geotrain, example: Path):
    use_layers(example, 3)
    replace(example / "plan.yaml", "schedule: atlas", "schedule: interleaved\ninterleave: 3")
    replace(example / "job.yaml", "microbatches: 4 ", "microbatches: 5 ")
    figures = geotrain("simulate", "plan.yaml", "--json").json
    assert figures["num_spans"]["actions"] == 3 * (12 * 5 * 3 - 5)
