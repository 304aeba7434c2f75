import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import replace
from io import StringIO
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from geotrain.cli._output import json_text
from geotrain.reports.prefill import prefill_html, prefill_json, prefill_table, prefill_trace, write_prefill_trace
from geotrain.reports.prefill.charts import utilization_chart
from geotrain.reports.prefill.timeline import excerpt, filled_gantt
from tests.reports import sample
from tests.reports.prefill import studies
from tests.reports.prefill.studies import NO_SPANS, NOTHING

CONTRACT = {
    "gpu_utilization_before", "gpu_utilization_after", "ttft_s", "goodput_rps", "slo_attainment", "training_slowdown",
    "decision_us", "requests",
}  # fmt: skip


def idle():
    """Nobody came: nothing was done, and nothing was compared."""
    made = studies.study()
    none = NOTHING.astype(float)
    quiet = replace(made.ours, ttft_s=none, done=0, rejected=0, failed=0, reasons={}, met=0, tokens=0, reused_tokens=0,
                    overruns=0, used_s=0.0, decision_s=none, wasted_s={"no work": made.ours.offered_s},
                    gpu_utilization=made.ours.training_utilization, spans=NO_SPANS)  # fmt: skip
    return replace(made, ours=quiet, dedicated=replace(quiet, name="dedicated"), baselines={}, rate_rps=0.0)


def unknown_reason():
    made = studies.study()
    return replace(made, ours=replace(made.ours, wasted_s={"moonlight": 1.5, "guard": 0.2}))


STUDIES = [
    pytest.param(studies.study, id="plain"),
    pytest.param(idle, id="nobody-came"),
    pytest.param(unknown_reason, id="unknown-reason"),
    pytest.param(lambda: studies.study(steps=1, known=1, requests=10), id="one-step"),
    pytest.param(lambda: studies.study(steps=1000, known=2), id="many-steps"),
    pytest.param(lambda: studies.study(result=sample.one_datacenter()), id="one-data-center"),
    pytest.param(lambda: replace(studies.study(), training=studies.NO_TRAINING), id="no-training-kept"),
]


def show(study):
    page = StringIO()
    Console(width=80, file=page, no_color=True, force_terminal=False).print(prefill_table(study))
    return page.getvalue()


def traced(study, *, most_spans=100_000, most_steps=20):
    part = excerpt(study, most_spans=most_spans, most_steps=most_steps)
    return json.loads("".join(prefill_trace(part)))


def by_track(events):
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event))
    return tracks


# ---- figures ----


@pytest.mark.parametrize("make", STUDIES)
def test_json_keeps_its_names_for_ours_and_for_every_baseline(make):
    answer = json.loads(json_text(prefill_json(make())))

    assert answer.keys() >= CONTRACT | {"baselines", "dedicated", "bubble_s", "overruns"}
    for other in [*answer["baselines"].values(), answer["dedicated"]]:
        assert other.keys() >= CONTRACT
    assert answer["ttft_s"].keys() == {"p50", "p95", "p99"}
    assert answer["training_slowdown"].keys() >= {"mean", "p99"} and answer["decision_us"].keys() >= {"mean", "p99"}
    assert answer["requests"].keys() >= {"done", "rejected", "failed"}


def test_json_says_what_happened():
    answer = prefill_json(studies.study())

    assert list(answer["baselines"]) == ["none", "reactive", "fixed", "oracle"]
    assert answer["gpu_utilization_before"] == answer["baselines"]["none"]["gpu_utilization_after"]
    assert answer["gpu_utilization_after"] == pytest.approx(0.9805, abs=1e-4)
    assert answer["requests"]["reasons"] == {"would miss the SLO": 88, "its slot died": 2}
    assert answer["decision_us"]["mean"] == pytest.approx(31.3, abs=0.1)
    assert answer["bubble_s"]["used"] + sum(answer["bubble_s"]["wasted"].values()) == pytest.approx(
        answer["bubble_s"]["offered"]
    )


@pytest.mark.parametrize("make", STUDIES)
def test_the_table_fits_80_columns(make):
    text = show(make())

    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text and "nan" not in text


def test_the_table_says_what_people_ask_for():
    text = " ".join(show(studies.study()).split())

    for figure in (
        "Prefill of llama-3.1-8b (2 slots an instance) in its bubbles: trace made-up at 66.77 requests/s, 900 requests",
        "GPU utilization 42.2% → 98.0% training alone, then with prefill: 12 GPUs over 13.48 s, whole steps",
        "training slower by 0.01% mean; p99 0.28%; 4 overruns",
        "time to first token 359.5 ms p50; p95 1.229 s, p99 1.949 s",
        "against dedicated GPUs 1.20x as long p50, there 299.6 ms; p99 1.20x, there 1.624 s; on 7 GPUs that only "
        "prefill, bubbles amount to 6.83",
        "SLO attainment 89.2% of all arrivals have their first token within 2 s",
        "time of a decision 31.29 us mean; p99 88.44 us",
        "none 42.2% 0/s 0.0% - - 0.00% 0.00% 0",
        "reactive 70.1% 59.5/s 89.2% 359.5 ms 1.949 s 2.01% 2.28% 4",
        "P prefill 98.1%",
        "g guard 1.1%",
        "rejected 88 9.8%",
        "not done because: would miss the SLO: 88; its slot died: 2",
    ):
        assert figure in text


def test_a_reason_that_is_new_keeps_its_name():
    assert "? moonlight" in show(unknown_reason())


# ---- Perfetto ----


@pytest.mark.parametrize("make", STUDIES)
def test_training_and_prefill_share_the_tracks_and_never_overlap(make):
    study = make()
    events = traced(study)["traceEvents"]
    tracks = by_track(events)

    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert tracks.keys() <= named and len(named) == study.ours.num_slots
    for spans in tracks.values():
        times = sorted((round(start * 1000), round(end * 1000)) for start, end, _ in spans)
        assert all(before[1] <= after[0] for before, after in pairwise(times))


def test_a_track_holds_both_and_each_step_a_mark():
    study = studies.study()
    trace = traced(study)
    events = trace["traceEvents"]

    kinds = [{event["cat"] for *_, event in spans} for spans in by_track(events).values()]
    assert all({"forward", "backward", "prefill", "optimizer", "all-reduce"} <= kind for kind in kinds)
    assert [event["name"] for event in events if event["ph"] == "i"] == [f"step {number}" for number in range(6)]
    assert trace["otherData"]["shown"] == "steps 0 to 5 of 30"
    first = next(event for event in events if event["ph"] == "X" and event["cat"] == "prefill")
    assert first["args"] == {"kind": "prefill", "request": 6, "tokens": 256, "stage": 0, "pipeline": 0}


def test_every_flow_leads_from_piece_to_piece_of_one_request():
    events = traced(studies.study())["traceEvents"]
    tracks = by_track(events)
    phases: dict[int, str] = defaultdict(str)
    for event in events:
        if event["ph"] in "stf":
            (inside,) = (e for start, end, e in tracks[event["pid"], event["tid"]] if start < event["ts"] < end)
            assert inside["args"]["request"] == event["id"] - 1
            phases[event["id"]] += event["ph"]

    assert phases and all(re.fullmatch("st*f", order) for order in phases.values())


def test_a_large_study_leaves_a_small_file_that_says_what_is_missing(tmp_path):
    study = studies.study(result=sample.large(), steps=1, known=1)
    said = write_prefill_trace(study, tmp_path / "trace.json")

    assert len(study.training) > 150_000
    assert said == "step 0 of 1, 1 pipeline of 4"
    assert (tmp_path / "trace.json").stat().st_size < 30_000_000


@pytest.mark.parametrize(
    ("most_spans", "most_steps", "said"),
    [(10**6, 4, "steps 2 to 5 of 30"), (1000, 4, "steps 3 to 5 of 30"), (200, 4, "step 5 of 30, 2 pipelines of 3"),
     (1, 1, "step 5 of 30, 1 pipeline of 3")],
    ids=["steps", "spans", "pipelines", "hardly-anything"],
)  # fmt: skip
def test_an_excerpt_is_the_last_steps_that_are_known(most_spans, most_steps, said):
    part = excerpt(studies.study(), most_spans=most_spans, most_steps=most_steps)

    assert part.said == said
    if most_spans >= 200:
        assert sum(len(track.rows) + len(track.prefill) for track in part.tracks) <= most_spans


# ---- HTML ----


@pytest.mark.parametrize("make", STUDIES)
def test_the_report_fetches_nothing_and_every_chart_has_words(make):
    text = prefill_html(make())

    assert not re.search(r"https?://|@import|url\(|nan", re.sub(r'id="columns">.*?</script>', "", text))
    assert not re.search(r'\s(src|href)="', text)
    charts = re.findall(r'<svg class="(?:bar|plot)" role="img"[^>]*>(.{19})', text)
    assert charts and len(re.findall(r'<svg class="(?:bar|plot)"[^>]*><title>[^<]+</title><desc>[^<]+', text)) == len(
        charts
    )


def test_the_policy_allows_this_script_only():
    text = prefill_html(studies.study())
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)

    assert f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}" in text


def test_names_cannot_become_markup():
    evil = '</script><script>alert("x")</script>'
    made = studies.study(result=sample.small(names=(evil, "south", "west")))
    ours = replace(made.ours, reasons={evil: 90}, wasted_s={evil: 1.0})
    text = prefill_html(replace(made, trace=evil, models=(evil,), degree={evil: 1}, ours=ours))

    assert evil not in text
    assert "&lt;script&gt;alert" in text


def test_the_same_study_gives_the_same_bytes():
    made = studies.study()

    assert prefill_html(made) == prefill_html(made)
    assert traced(made) == traced(made)


def test_the_timeline_holds_all_spans_of_its_steps_in_order():
    study = studies.study()
    picture = filled_gantt(excerpt(study, most_spans=10**6, most_steps=4))
    count = picture.description["spans"]
    start, length = np.frombuffer(base64.b64decode(picture.columns), "<u4", 2 * count).reshape(2, count).astype(int)

    first = 0
    for track in picture.description["tracks"]:
        rows = slice(first, first + track["count"])
        assert ((start + length)[rows][:-1] <= start[rows][1:]).all()
        first += track["count"]
    assert first == count and len(picture.description["marks"]) == 3
    assert [kind["name"] for kind in picture.description["kinds"] if kind["used"]][-1] == "prefill"


def test_utilization_over_time_adds_up():
    chart = utilization_chart(studies.study())

    assert "without prefill 42.2%; with it 98.0%, of which training 42.2%; lowest 98.1%, highest 98.1%" in chart


def test_prefill_gpus_of_the_clusters_own_are_not_taken_for_bubbles():
    made = studies.study()
    spans = made.ours.spans
    both = {name: np.repeat(getattr(spans, name), 2) for name in ("start_s", "end_s", "request", "tokens")}
    slot = np.stack([spans.slot, spans.slot + made.ours.num_slots], 1).reshape(-1)
    more = replace(made, ours=replace(made.ours, spans=replace(spans, slot=slot, **both)))

    assert utilization_chart(more) == utilization_chart(made)
    assert traced(more)["otherData"] == traced(made)["otherData"]
    assert len(by_track(traced(more)["traceEvents"])) == made.ours.num_slots


@pytest.mark.timeout(180)
@pytest.mark.parametrize("make", STUDIES[:2])
def test_a_browser_draws_it_without_an_error(make, tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: the report's script was not run")
    page = tmp_path / "report.html"
    page.write_text(prefill_html(make()), encoding="utf-8")
    quiet = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command = [chromium, "--headless", "--no-sandbox", *quiet, f"--user-data-dir={tmp_path / 'profile'}"]

    dom = subprocess.run(
        [*command, "--window-size=1280,2000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=170, check=True,
    ).stdout  # fmt: skip

    drawn = re.search(r'data-drawn-spans="(\d+)"', dom)
    assert 'data-js-error="' not in dom
    assert drawn is not None and int(drawn[1]) > 0
