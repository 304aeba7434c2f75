"""What the experiments find: the same every time, and what the named command prints."""

import json
import math
import re
import shlex
from pathlib import Path

import pytest
import yaml

from geotrain.cli import build_app
from geotrain.reproduction import Finding
from geotrain.reproduction.finding import FILES
from geotrain.reproduction.grid import OTHERS, grid, plan_of, settings
from geotrain.reproduction.planning import datacenters
from geotrain.reproduction.prefill import decisions, first_token, slowdown, utilization
from geotrain.reproduction.schedules import ablation, schedules
from geotrain.reproduction.wire import bandwidth, parallelism
from geotrain.simulation import simulate

pytestmark = pytest.mark.slow


SMALL = {
    "bandwidth": lambda: bandwidth(rtts_ms=[40]),
    "parallelism": lambda: parallelism(rtts_ms=[40], microbatches=2),
    "schedules": lambda: schedules(vary="rtt_ms", values=[40], baselines=["gpipe", "varuna"], connections=1),
    "in-flight": lambda: schedules(vary="max_in_flight", values=[2], baselines=["gpipe", "1f1b"]),
    "ablation": lambda: ablation(settings={"two": {"microbatches": 2}}),
    "grid": lambda: grid(number=1),
    "datacenters": lambda: datacenters(gpus=60, counts=[1], microbatches=4),
    "utilization": lambda: utilization(models=["gpt-b"], duration_s=5),
    "first-token": lambda: first_token(models=["gpt-a"], degrees=[2], duration_s=5, load=0.5),
    "slowdown": lambda: slowdown(models=["gpt-b"], jitters=["step=2%"], duration_s=5),
}


def printed(command: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> float | None:
    """What the command prints, if what it reads is a plain path into the answer."""
    said, read = command.replace(FILES, str(directory)).split(" | jq ")
    path = shlex.split(read)[0]
    if not re.fullmatch(r"(\.\w+(\[\d+\])?)+", path):
        return None
    build_app()(shlex.split(said)[1:], standalone_mode=False)
    answer = json.loads(capsys.readouterr().out)
    for name, index in re.findall(r"\.(\w+)(?:\[(\d+)\])?", path):
        answer = answer[name] if not index else answer[name][int(index)]
    return answer if isinstance(answer, int | float) else None


@pytest.mark.parametrize("kind", SMALL)
def test_two_runs_find_the_same_and_the_command_prints_it(kind, tmp_path, capsys):
    found = list(SMALL[kind]())
    assert found and found == list(SMALL[kind]())
    for one in found:
        for source in one.sources:
            for name, document in source.files.items():
                (tmp_path / name).write_text(yaml.safe_dump(document.dump()))
    checked = 0
    for one in found[:: max(1, len(found) // 2)]:
        values = [printed(source.command, tmp_path, capsys) for source in one.sources if "| jq" in source.command]
        numbers = [value for value in values if value is not None]
        if numbers and len(numbers) == len(values):
            checked += 1
            assert one.value == pytest.approx(numbers[0] / (numbers[1] if len(numbers) == 2 else 1), rel=1e-9)
    assert checked


def figures(found: list[Finding], figure: str) -> list[float]:
    return [one.value for one in found if one.figure == figure]


def test_auto_is_never_slower_than_a_published_schedule():
    for kind in ("schedules", "in-flight", "grid"):
        found = list(SMALL[kind]())
        assert min(figures(found, "speed-up of auto")) >= 1
        assert min(figures(found, "step over bound")) >= 1


def test_gpipe_which_holds_all_four_has_no_figures_where_two_may_be_in_flight():
    assert {one.row["schedule"] for one in SMALL["in-flight"]()} == {"1f1b", "atlas", "auto"}


def test_tensor_parallel_suffers_most_and_pipelines_least():
    found = {one.row["parallelism"]: one.value for one in SMALL["parallelism"]() if one.row["connections"] == "one"}
    assert found["pipeline"] < found["data"] < found["tensor"]


def test_what_a_clock_measured_keeps_every_repetition():
    found = list(decisions(cells=[1], repetitions=5, duration_s=0.5))
    assert [len(one.samples) for one in found] == [5, 5]
    assert all(one.measured for one in found)


def test_settings_of_the_grid_never_repeat():
    drawn = [tuple(setting.values()) for setting, _ in zip(settings(), range(240), strict=False)]
    assert len(set(drawn)) == 240


def test_the_rivals_of_auto_are_at_their_best():
    setting = next(settings())
    found = {one.row.get("schedule"): one.value for one in SMALL["grid"]() if one.figure == "speed-up of auto"}
    auto_s = simulate(plan_of(setting, "auto")).step_time_s
    for schedule in OTHERS:
        best_s = min(simulate(plan_of(setting, schedule, sharing)).step_time_s for sharing in ("spatial", "temporal"))
        assert found[schedule] == pytest.approx(best_s / auto_s)
    assert found["zero-bubble-2p"] < found["zero-bubble"]


def test_the_ideas_of_the_search_add_up_to_what_the_search_brings():
    found = list(SMALL["grid"]())
    gains = {one.row["idea"]: one.value for one in found if one.figure == "gain of the idea, all settings"}
    over_atlas = figures([one for one in found if one.row.get("schedule") == "atlas"], "speed-up of auto")
    assert math.prod(gains.values()) == pytest.approx(over_atlas[0])
    helps = {one.row["idea"]: one.value for one in found if one.figure == "settings in which it helps"}
    assert helps == {idea: float(gain > 1.001) for idea, gain in gains.items()}
    assert helps["best named schedule"] == 1
