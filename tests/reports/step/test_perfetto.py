import json
import time
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from geotrain.errors import InputError
from geotrain.reports.step import perfetto_trace, write_perfetto
from tests.reports import sample

RESULTS = [
    pytest.param(sample.small, id="pooled"),
    pytest.param(lambda: sample.small(sharing="spatial"), id="a-pair-each"),
    pytest.param(sample.interleaved, id="interleaved"),
    pytest.param(sample.one_datacenter, id="one-data-center"),
    pytest.param(lambda: sample.small(names=("WAN", '"quoted"', "zürich\n")), id="awkward-names"),
]


def events(result):
    return json.loads("".join(perfetto_trace(result)))["traceEvents"]


def by_track(found):
    tracks = defaultdict(list)
    for event in found:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event))
    return tracks


def names(found, kind):
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["ph"] == "M" and e["name"] == kind}


def test_a_process_per_datacenter_and_a_track_per_slot_and_channel():
    found = events(sample.small())

    assert list(names(found, "process_name").values()) == ["east", "south", "west", "WAN"]
    assert list(names(found, "thread_name").values()) == [
        "pipeline 0 stage 0",
        "pipeline 0 stage 1",
        "pipeline 1 stage 0",
        "pipeline 1 stage 1",
        "pipeline 2 stage 0",
        "pipeline 2 stage 1",
        "pipeline 0 stage 2",
        "pipeline 1 stage 2",
        "pipeline 2 stage 2",
        "pipeline 0 stage 3",
        "pipeline 1 stage 3",
        "pipeline 2 stage 3",
        "east → south",
        "south → east",
        "south → west",
        "west → south",
    ]


def test_spatial_sharing_has_a_track_per_pipeline():
    wan = [name for name in names(events(sample.small(sharing="spatial")), "thread_name").values() if "→" in name]

    assert wan[:4] == [
        "east → south, pipeline 0",
        "east → south, pipeline 1",
        "east → south, pipeline 2",
        "south → east, pipeline 0",
    ]
    assert len(wan) == 12


@pytest.mark.parametrize("make", RESULTS)
def test_every_track_is_named_sorted_and_its_number_is_its_own(make):
    found = events(make())
    tracks = set(by_track(found))

    for kind in ("thread_name", "thread_sort_index"):
        assert {(e["pid"], e["tid"]) for e in found if e["name"] == kind} == tracks
    assert len({tid for _, tid in tracks}) == len(tracks)


@pytest.mark.parametrize("make", RESULTS)
def test_slices_of_a_track_never_overlap(make):
    for spans in by_track(events(make())).values():
        times = sorted((round(start * 1000), round(end * 1000)) for start, end, _ in spans)
        assert all(before[1] <= after[0] for before, after in pairwise(times))


@pytest.mark.parametrize("make", RESULTS)
def test_every_flow_starts_and_ends_once_inside_a_slice(make):
    found = events(make())
    tracks = by_track(found)
    phases: dict[int, Counter[str]] = defaultdict(Counter)
    for event in found:
        if event["ph"] in "stf":
            phases[event["id"]][event["ph"]] += 1
            inside = [e for start, end, e in tracks[event["pid"], event["tid"]] if start < event["ts"] < end]
            assert len(inside) == 1
    assert phases
    assert all(count["s"] == count["f"] == 1 and count["t"] <= 1 for count in phases.values())
    assert all(event["bp"] == "e" for event in found if event["ph"] == "f")


def test_a_flow_leads_from_the_action_over_the_transfer_to_the_action_that_waited():
    found = events(sample.small())
    tracks = by_track(found)
    said = defaultdict(list)
    for event in found:
        if event["ph"] in "stf":
            (inside,) = (e for start, end, e in tracks[event["pid"], event["tid"]] if start < event["ts"] < end)
            said[event["id"]].append((inside["name"], inside["args"]["stage"], inside["args"]["pipeline"]))

    assert [("F₃", 1, 2), ("A₃ p2", 1, 2), ("F₃", 2, 2)] in said.values()
    assert [("B₀", 2, 1), ("G₀ p1", 2, 1), ("B₀", 1, 1)] in said.values()
    assert [("F₃", 0, 0), ("F₃", 1, 0)] in said.values()


def test_slices_carry_what_happened():
    found = events(sample.small())
    first = next(event for event in found if event["ph"] == "X")
    transfer = next(event for event in found if event["ph"] == "X" and event["cat"] == "activation")

    assert first == {
        "name": "F₀",
        "cat": "forward",
        "ph": "X",
        "ts": 0.0,
        "dur": 12500.0,
        "pid": 1,
        "tid": 1001,
        "cname": "thread_state_running",
        "args": {"action": "0F0", "kind": "forward", "stage": 0, "microbatch": 0, "pipeline": 0},
    }
    assert transfer["args"] == {
        "kind": "activation",
        "microbatch": 0,
        "pipeline": 0,
        "stage": 1,
        "target_stage": 2,
        "bytes": 33_554_432,
        "arrives_us": transfer["ts"] + transfer["dur"] + 20_000,
    }
    closing = Counter(event["name"] for event in found if event["ph"] == "X" and "microbatch" not in event["args"])
    assert closing == {"all-reduce": 12, "optimizer": 12}


def test_all_spans_are_there():
    result = sample.interleaved()
    kinds = Counter(event["cat"] for event in events(result) if event["ph"] == "X")

    assert sum(kinds[kind] for kind in ("forward", "recompute", "backward")) == len(result.timeline.actions)


def test_a_large_step_is_written_in_seconds(tmp_path):
    result = sample.large()
    begin = time.process_time()
    write_perfetto(result, tmp_path / "trace.json")

    assert time.process_time() - begin < 10
    assert len(list(tmp_path.iterdir())) == 1
    spans = [
        event for event in json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"] if event["ph"] == "X"
    ]
    assert len(spans) > len(result.timeline.actions)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match=r"trace\.json: cannot be written"):
        write_perfetto(sample.small(), tmp_path / "file" / "trace.json")


def test_the_same_result_gives_the_same_bytes():
    assert "".join(perfetto_trace(sample.small())) == "".join(perfetto_trace(sample.small()))
