import json
import xml.etree.ElementTree as ElementTree
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from geotrain.errors import InputError
from geotrain.reports.runs import RunComparison, run_comparison_json, run_comparison_table, runs_svg
from geotrain.reports.step import perfetto_traces
from geotrain.training.measured import gather
from geotrain.training.recording import Recording
from tests.reports.step.test_perfetto import by_track, names
from tests.training.plans import plan
from tests.training.runs import record, simulated
from tests.training.test_measured import JOB, PLANS

SVG = "{http://www.w3.org/2000/svg}"


def compared(directory: Path, name: str = "pooled", stretch: tuple[float, ...] = (1.0,)) -> RunComparison:
    """A simulated step against itself, played again so much slower."""
    ours = simulated(PLANS[name]())
    record(ours, directory, stretch=stretch)
    return RunComparison(simulated=ours, measured=gather(directory))


def test_a_simulation_against_itself_has_no_error():
    ours = simulated(PLANS["pooled"]())
    comparison = RunComparison(simulated=ours, measured=ours)
    assert comparison.error == 0
    assert all(row.ratio == 1 and row.simulated == row.measured for row in comparison.rows)
    assert comparison.differing == []


@pytest.mark.parametrize("name", PLANS)
def test_a_run_that_went_as_predicted_has_no_error_whatever_the_plan(tmp_path: Path, name: str):
    comparison = compared(tmp_path, name)
    assert comparison.error == pytest.approx(0, abs=1e-9)
    for row in comparison.rows:
        assert row.simulated is not None and row.measured is not None
        assert row.measured.count == row.simulated.count
        assert row.ratio == pytest.approx(1, abs=1e-6)
    assert comparison.measured.gpu_utilization == pytest.approx(comparison.simulated.gpu_utilization)


def test_a_stretched_run_shows_the_stretch_and_its_first_step_does_not_count(tmp_path: Path):
    answer = run_comparison_json(compared(tmp_path, stretch=(9.0, 1.25, 1.2, 1.3)))
    step = answer["step_time_s"]
    assert answer["error"] == pytest.approx(1 / 1.25 - 1)
    assert step["measured"] == pytest.approx(1.25 * step["simulated"])
    assert step["measured_lowest"] == pytest.approx(1.2 * step["simulated"])
    assert step["measured_highest"] == pytest.approx(1.3 * step["simulated"])
    assert answer["steps"] == 3
    actions = [row for row in answer["rows"] if "action" in row]
    assert [row["action"] for row in actions] == ["forward", "backward", "all-reduce", "optimizer"]
    assert [row["count"] for row in actions] == [36, 36, 9, 9]
    assert all(row["ratio"] == pytest.approx(1.25) for row in actions)


def test_links_have_their_bytes_times_and_rates(tmp_path: Path):
    answer = run_comparison_json(compared(tmp_path, "spatial", stretch=(1.5,)))
    links = [row for row in answer["rows"] if "from" in row]
    assert [(row["from"], row["to"]) for row in links] == [
        ("east", "south"),
        ("south", "east"),
        ("south", "west"),
        ("west", "south"),
    ]
    for link in links:
        assert (link["count"], link["bytes"]) == (8, 8e6)
        assert link["predicted_s"] == pytest.approx(0.008 + 0.005)
        assert link["predicted_rate"] == pytest.approx(1.25e8)
        # Stretched from being handed over to the arrival, of which the latency is 5 ms.
        assert link["measured_s"] == pytest.approx(1.5 * 0.013)
        assert link["measured_rate"] == pytest.approx(1e6 / (1.5 * 0.013 - 0.005))


def test_what_only_one_side_did_has_no_ratio():
    whole = simulated(plan(job=JOB, schedule="1f1b"))
    split = simulated(plan(job=JOB, schedule="zero-bubble"))
    comparison = RunComparison(simulated=whole, measured=split)
    rows = {row.sort.name: row for row in comparison.rows}
    assert rows["backward"].measured is None and rows["weight gradient"].simulated is None
    assert rows["backward"].ratio is None and rows["forward"].ratio == pytest.approx(1)
    assert comparison.differing == ["schedule"]
    assert "differ in: schedule" in said(comparison)


def said(comparison: RunComparison) -> str:
    console = Console(width=80, file=StringIO())
    with console.capture() as shown:
        console.print(run_comparison_table(comparison))
    return shown.get()


def test_the_table_says_step_time_error_actions_and_links(tmp_path: Path):
    text = said(compared(tmp_path, stretch=(3.0, 1.0, 1.25, 1.5)))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "step time 222.1 ms 277.6 ms -20.0% 3 steps, 222.1 ms to 333.2 ms" in lines
    assert "forward 36 10 ms 12.5 ms 1.250" in lines
    assert any(line.startswith("south → west 12 MB ") for line in lines)
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        pytest.param(
            plan(("east", "west"), job=JOB),
            "the two plans differ in stages: east, south simulated, east, west measured",
            id="stages",
        ),
        pytest.param(
            plan(job=JOB, pipelines_per_cell=2),
            "the two plans differ in pipelines: 1 simulated, 2 measured",
            id="pipelines",
        ),
        pytest.param(
            plan(job=JOB | {"microbatches": 5}),
            "the two plans differ in microbatches: 4 simulated, 5 measured",
            id="microbatches",
        ),
    ],
)
def test_other_layouts_are_not_compared(other, sentence: str):
    with pytest.raises(InputError) as caught:
        RunComparison(simulated=simulated(plan(job=JOB)), measured=simulated(other))
    assert str(caught.value) == sentence


def shapes(svg: str) -> tuple[int, list[str]]:
    """Drawn spans, and row names from top to bottom."""
    root = ElementTree.fromstring(svg)
    spans = sum(path.get("d", "").count("z") for path in root.iter(f"{SVG}path"))
    return spans, [text.text or "" for text in root.iter(f"{SVG}text") if text.get("class") == "label"]


def test_the_picture_has_both_steps_with_all_their_spans(tmp_path: Path):
    comparison = compared(tmp_path, stretch=(1.0, 1.25))
    spans, labels = shapes(runs_svg(comparison))
    timeline = comparison.simulated.steps[0][1]
    assert spans == 2 * (len(timeline.actions) + len(timeline.transfers) + 2 * 9)
    assert labels == 2 * [
        "p0 s0", "p1 s0", "p2 s0", "p0 s1", "p1 s1", "p2 s1", "p0 s2", "p1 s2", "p2 s2",
        "east→south", "south→east", "south→west", "west→south",
    ]  # fmt: skip


def test_pipelines_that_were_simulated_as_one_are_drawn_as_one(tmp_path: Path):
    svg = runs_svg(compared(tmp_path, "spatial"))
    assert "pipeline 0 of 2" in svg
    assert shapes(svg)[1][:4] == ["p0 s0", "p0 s1", "p0 s2", "east→south p0"]


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_can_be_drawn_and_the_same_run_is_the_same_picture(tmp_path: Path, name: str):
    comparison = compared(tmp_path, name)
    assert shapes(runs_svg(comparison))[0] > 0
    assert runs_svg(comparison) == runs_svg(comparison)


def test_names_are_escaped(tmp_path: Path):
    ours = simulated(plan(("<east>", "a&b"), job=JOB))
    assert "&lt;east&gt;→a&amp;b" in runs_svg(RunComparison(simulated=ours, measured=ours))


def test_a_trace_of_both_has_processes_tracks_and_flows_of_their_own(tmp_path: Path):
    comparison = compared(tmp_path)
    steps = {"simulated": comparison.simulated.typical, "measured": comparison.measured.typical}
    trace = json.loads("".join(perfetto_traces(steps)))
    found = trace["traceEvents"]
    assert list(names(found, "process_name").values()) == [
        "simulated east", "simulated south", "simulated west", "simulated WAN",
        "measured east", "measured south", "measured west", "measured WAN",
    ]  # fmt: skip
    tracks = by_track(found)
    assert len(tracks) == 2 * (9 + 4) == len({tid for _, tid in tracks})
    starts = [event["id"] for event in found if event["ph"] == "s"]
    assert len(starts) == len(set(starts)) > 0
    assert list(trace["otherData"]) == ["simulated", "measured"]


def test_cells_have_channels_of_their_own(tmp_path: Path):
    comparison = compared(tmp_path, "cells")
    found = [name for name in shapes(runs_svg(comparison))[1] if "→" in name]
    text = "".join(perfetto_traces({"": comparison.measured.typical}))
    pooled = comparison.measured.pooled
    assert pooled and ("east → south, cell 1" in text) == (0 in pooled)
    assert not any("(2)" in name for name in found)


def test_a_recording_without_time_is_refused():
    ours = simulated(plan(job=JOB))
    timeline = ours.steps[0][1]
    frozen = type(timeline)(
        **{name: getattr(timeline, name) for name in ("num_stages", "num_pipelines", "copies", "actions", "transfers")},
        **{name: getattr(timeline, name) * 0 for name in ("reduce_start_s", "update_start_s", "update_end_s")},
    )
    still = Recording(origin="measured", plan=ours.plan, pooled=ours.pooled, steps=[(0, frozen)])
    with pytest.raises(InputError, match="the measured step takes no time"):
        RunComparison(simulated=ours, measured=still)
