"""A step in the Chrome JSON trace-event format, which ui.perfetto.dev and chrome://tracing open.

A process per data center with a track per slot, a process for the WAN with a track per channel, and flows that lead
from the action that made something over its transfer to the action that used it. Written in pieces: a step has many
spans. Perfetto names tracks by thread number alone, so thread numbers are unique over all processes; it knows only
simple escapes, so names are written as UTF-8; and `displayTimeUnit` is left out because its releases disagree on it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from geotrain.action import Kind
from geotrain.files import writing
from geotrain.reports.flows import NONE, flows
from geotrain.reports.tracks import (
    WAN,
    ChannelTrack,
    SlotTrack,
    channel_tracks,
    nanoseconds,
    slot_tracks,
    transfer_bytes,
)
from geotrain.reports.words import KIND_WORDS, datacenters, plan_sentence
from geotrain.simulation.result import Result
from geotrain.timeline import Actions, Floats, Ints, Transfers

# The names chrome://tracing reserves for colours, those that are easy to tell apart.
_COLOURS = [
    "thread_state_running",
    "thread_state_iowait",
    "thread_state_runnable",
    "thread_state_uninterruptible",
    "rail_response",
    "rail_animation",
    "rail_idle",
    "rail_load",
    "good",
    "bad",
    "terrible",
    "olive",
]
# Perfetto colours a slice by its name without ASCII digits; subscripts keep a colour of its own for each microbatch.
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_FIRST_THREAD = 1001

_Track = SlotTrack | ChannelTrack


def write_perfetto(result: Result, path: Path) -> None:
    """Write the trace piece by piece: a large step's trace never is in memory as a whole."""
    with writing(path) as file:
        file.writelines(perfetto_trace(result))


def perfetto_trace(result: Result) -> Iterator[str]:
    """The text of the trace file, in pieces."""
    tracks: list[_Track] = [*slot_tracks(result), *channel_tracks(result)]
    names = [*datacenters(result.plan), WAN]
    pids = [1 + names.index(track.datacenter) if isinstance(track, SlotTrack) else len(names) for track in tracks]
    yield '{"traceEvents":[\n'
    yield ",\n".join(_names(names, tracks, pids))
    for events in _track_events(result, tracks, pids):
        yield "".join(f",\n{event}" for event in events)
    yield from _flow_events(result, tracks, pids)
    about = {"plan": plan_sentence(result.plan), "step_time_s": result.step_time_s, "copies": result.timeline.copies}
    yield f'\n],"otherData":{json.dumps(about, ensure_ascii=False)}}}\n'


def _names(names: list[str], tracks: list[_Track], pids: list[int]) -> Iterator[str]:
    """Metadata events that name and sort the tracks."""
    for pid in dict.fromkeys(pids):
        tid = _FIRST_THREAD + pids.index(pid)
        yield _metadata("process_name", pid, tid, "name", names[pid - 1])
        yield _metadata("process_sort_index", pid, tid, "sort_index", pid)
    for index, (track, pid) in enumerate(zip(tracks, pids, strict=True)):
        yield _metadata("thread_name", pid, _FIRST_THREAD + index, "name", track.name)
        yield _metadata("thread_sort_index", pid, _FIRST_THREAD + index, "sort_index", index)


def _metadata(kind: str, pid: int, tid: int, field: str, value: str | int) -> str:
    args = json.dumps({field: value}, ensure_ascii=False)
    return f'{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"ts":0,"args":{args}}}'


def _microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _spans(start_s: Floats, end_s: Floats) -> Iterator[str]:
    """The time fields of complete events."""
    start, end = nanoseconds(start_s), nanoseconds(end_s)
    for begin, lasts in zip(start.tolist(), (end - start).tolist(), strict=True):
        yield f'"ph":"X","ts":{_microseconds(begin)},"dur":{_microseconds(lasts)}'


def _track_events(result: Result, tracks: list[_Track], pids: list[int]) -> Iterator[Iterator[str]]:
    sizes = transfer_bytes(result)
    for index, (track, pid) in enumerate(zip(tracks, pids, strict=True)):
        where = f'"pid":{pid},"tid":{_FIRST_THREAD + index}'
        if isinstance(track, SlotTrack):
            yield _actions(result.timeline.actions, track.rows, where)
            yield _closing(result, track.stage, where)
        else:
            size_bytes = sizes.get((track.source, track.target))
            yield _transfers(result.timeline.transfers, track.rows, where, size_bytes)


def _actions(actions: Actions, rows: Ints, where: str) -> Iterator[str]:
    columns = (actions.kind[rows], actions.stage[rows], actions.microbatch[rows], actions.pipeline[rows])
    times = _spans(actions.start_s[rows], actions.end_s[rows])
    for time, kind, stage, microbatch, pipeline in zip(times, *(column.tolist() for column in columns), strict=True):
        letter, word = Kind(kind).name, KIND_WORDS[Kind(kind)]
        yield (
            f'{{"name":"{letter}{str(microbatch).translate(_SUBSCRIPT)}","cat":"{word}",{time},{where},'
            f'"cname":"{_COLOURS[microbatch % len(_COLOURS)]}","args":{{"action":"{stage}{letter}{microbatch}",'
            f'"kind":"{word}","stage":{stage},"microbatch":{microbatch},"pipeline":{pipeline}}}}}'
        )


def _closing(result: Result, stage: int, where: str) -> Iterator[str]:
    """All-reduce and optimizer of a slot, where they take time."""
    timeline = result.timeline
    for name, start_s, end_s in (
        ("all-reduce", timeline.reduce_start_s, timeline.update_start_s),
        ("optimizer", timeline.update_start_s, timeline.update_end_s),
    ):
        if end_s[stage] > start_s[stage]:
            (time,) = _spans(start_s[stage : stage + 1], end_s[stage : stage + 1])
            yield f'{{"name":"{name}","cat":"{name}",{time},{where},"args":{{"kind":"{name}","stage":{stage}}}}}'


def _transfers(moved: Transfers, rows: Ints, where: str, size_bytes: float | None) -> Iterator[str]:
    columns = (
        moved.backward[rows],
        moved.source[rows],
        moved.target[rows],
        moved.microbatch[rows],
        moved.pipeline[rows],
    )
    size = "" if size_bytes is None else f',"bytes":{round(size_bytes)}'
    times = _spans(moved.start_s[rows], moved.end_s[rows])
    arrivals = nanoseconds(moved.arrive_s[rows]).tolist()
    for time, arrive, backward, source, target, microbatch, pipeline in zip(
        times, arrivals, *(column.tolist() for column in columns), strict=True
    ):
        letter, word = ("G", "gradient") if backward else ("A", "activation")
        yield (
            f'{{"name":"{letter}{str(microbatch).translate(_SUBSCRIPT)} p{pipeline}","cat":"{word}",{time},{where},'
            f'"cname":"{_COLOURS[microbatch % len(_COLOURS)]}","args":{{"kind":"{word}","microbatch":{microbatch},'
            f'"pipeline":{pipeline},"stage":{source},"target_stage":{target}{size},"arrives_us":{_microseconds(arrive)}}}}}'
        )


def _flow_events(result: Result, tracks: list[_Track], pids: list[int]) -> Iterator[str]:
    """Flow events, each strictly inside its slice."""
    actions, moved = result.timeline.actions, result.timeline.transfers
    action_track, transfer_track = _tracks_of_rows(result, tracks)
    chains = flows(result.timeline)
    points = np.stack(
        [
            action_track[chains.producer],
            nanoseconds(actions.end_s)[chains.producer] - 1,
            # One more entry at the end, so that a flow without a transfer (NONE is -1) finds no track.
            np.append(transfer_track, NONE)[chains.transfer],
            np.append(nanoseconds(moved.start_s) + 1, 0)[chains.transfer],
            action_track[chains.consumer],
            nanoseconds(actions.start_s)[chains.consumer] + 1,
        ],
        1,
    )
    points = points[(points[:, 0] != NONE) & (points[:, 4] != NONE)]

    def event(phase: str, number: int, track: int, ns: int) -> str:
        return (
            f',\n{{"name":"needs","cat":"flow","id":{number},"ph":{phase},'
            f'"pid":{pids[track]},"tid":{_FIRST_THREAD + track},"ts":{_microseconds(ns)}}}'
        )

    for number, (source, leave, channel, enter, target, arrive) in enumerate(points.tolist(), start=1):
        yield event('"s"', number, source, leave)
        if channel != NONE:
            yield event('"t"', number, channel, enter)
        yield event('"f","bp":"e"', number, target, arrive)


def _tracks_of_rows(result: Result, tracks: list[_Track]) -> tuple[Ints, Ints]:
    """Per action and per transfer: the index of its track; NONE for one not drawn or too short to hold a flow."""
    actions, moved = result.timeline.actions, result.timeline.transfers
    action_track, transfer_track = np.full(len(actions), NONE), np.full(len(moved), NONE)
    for index, track in enumerate(tracks):
        (action_track if isinstance(track, SlotTrack) else transfer_track)[track.rows] = index
    for columns, of_row in ((actions, action_track), (moved, transfer_track)):
        of_row[nanoseconds(columns.end_s) - nanoseconds(columns.start_s) < 2] = NONE
    return action_track, transfer_track
