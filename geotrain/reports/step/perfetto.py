"""A step in the Chrome JSON trace-event format, which ui.perfetto.dev and chrome://tracing open.

A process per data center with a track per slot, a process for the WAN with a track per channel, and flows that lead
from the action that made something over its transfer to the action that used it. Written in pieces: a step has many
spans. Perfetto names tracks by thread number alone, so thread numbers are unique over all processes; it knows only
simple escapes, so names are written as UTF-8; and `displayTimeUnit` is left out because its releases disagree on it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from geotrain.action import Kind
from geotrain.cost import transfer_bytes
from geotrain.files import writing
from geotrain.reports.step.flows import NONE, flows
from geotrain.reports.step.tracks import WAN, ChannelTrack, SlotTrack, Step, channel_tracks, nanoseconds, slot_tracks
from geotrain.reports.words import KIND_WORDS, plan_sentence
from geotrain.timeline import Actions, Floats, Ints, Timeline, Transfers

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
FIRST_THREAD = 1001

_Track = SlotTrack | ChannelTrack


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One of the steps in a trace, with its tracks and the numbers they have there."""

    step: Step
    title: str
    tracks: list[_Track]
    first_pid: int
    first_tid: int

    @cached_property
    def processes(self) -> list[str]:
        """Data centers, then the WAN."""
        return [*dict.fromkeys(track.datacenter for track in self.tracks if isinstance(track, SlotTrack)), WAN]

    @cached_property
    def pids(self) -> list[int]:
        """Per track."""
        last = len(self.processes) - 1
        places = [self.processes.index(t.datacenter) if isinstance(t, SlotTrack) else last for t in self.tracks]
        return [self.first_pid + place for place in places]

    def tid(self, track: int) -> int:
        """Of the track with that index."""
        return self.first_tid + track


def write_perfetto(step: Step, path: Path) -> None:
    """Write the trace piece by piece: a large step's trace never is in memory as a whole."""
    with writing(path) as file:
        file.writelines(perfetto_trace(step))


def perfetto_trace(step: Step) -> Iterator[str]:
    """The text of the trace file, in pieces."""
    yield from perfetto_traces({"": step})


def perfetto_traces(steps: Mapping[str, Step]) -> Iterator[str]:
    """Several steps in one trace, one below the other; their titles go before the names of the data centers."""
    parts: list[_Part] = []
    pid, tid = 1, FIRST_THREAD
    for title, step in steps.items():
        tracks: list[_Track] = [*slot_tracks(step), *channel_tracks(step)]
        parts.append(_Part(step=step, title=title, tracks=tracks, first_pid=pid, first_tid=tid))
        pid, tid = pid + len(parts[-1].processes), tid + len(tracks)
    yield '{"traceEvents":[\n'
    yield ",\n".join(name for part in parts for name in _names(part))
    numbers = count(1)
    for part in parts:
        for events in _track_events(part):
            yield "".join(f",\n{event}" for event in events)
        yield from _flow_events(part, numbers)
    about = {part.title: _about(part.step) for part in parts}
    yield f'\n],"otherData":{json.dumps(about.get("", about), ensure_ascii=False)}}}\n'


def _about(step: Step) -> dict[str, Any]:
    timeline = step.timeline
    return {"plan": plan_sentence(step.plan), "step_time_s": timeline.step_time_s, "copies": timeline.copies}


def _names(part: _Part) -> Iterator[str]:
    """Metadata events that name and sort the tracks."""
    for pid in dict.fromkeys(part.pids):
        tid, name = part.tid(part.pids.index(pid)), part.processes[pid - part.first_pid]
        yield metadata("process_name", pid, tid, "name", f"{part.title} {name}" if part.title else name)
        yield metadata("process_sort_index", pid, tid, "sort_index", pid)
    for index, (track, pid) in enumerate(zip(part.tracks, part.pids, strict=True)):
        yield metadata("thread_name", pid, part.tid(index), "name", track.name)
        yield metadata("thread_sort_index", pid, part.tid(index), "sort_index", part.tid(index) - FIRST_THREAD)


def metadata(kind: str, pid: int, tid: int, field: str, value: str | int) -> str:
    args = json.dumps({field: value}, ensure_ascii=False)
    return f'{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"ts":0,"args":{args}}}'


def microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def complete(start_s: Floats, end_s: Floats) -> Iterator[str]:
    """The time fields of complete events."""
    start, end = nanoseconds(start_s), nanoseconds(end_s)
    for begin, lasts in zip(start.tolist(), (end - start).tolist(), strict=True):
        yield f'"ph":"X","ts":{microseconds(begin)},"dur":{microseconds(lasts)}'


def _track_events(part: _Part) -> Iterator[Iterator[str]]:
    timeline, size_bytes = part.step.timeline, transfer_bytes(part.step.plan.job)
    for index, (track, pid) in enumerate(zip(part.tracks, part.pids, strict=True)):
        where = f'"pid":{pid},"tid":{part.tid(index)}'
        if isinstance(track, SlotTrack):
            yield action_events(timeline.actions, track.rows, where)
            yield _closing(timeline, track.stage, where)
        else:
            yield _transfers(timeline.transfers, track.rows, where, size_bytes)


def action_events(actions: Actions, rows: Ints, where: str) -> Iterator[str]:
    columns = (actions.kind[rows], actions.stage[rows], actions.microbatch[rows], actions.pipeline[rows])
    times = complete(actions.start_s[rows], actions.end_s[rows])
    for time, kind, stage, microbatch, pipeline in zip(times, *(column.tolist() for column in columns), strict=True):
        letter, word = Kind(kind).name, KIND_WORDS[Kind(kind)]
        yield (
            f'{{"name":"{letter}{str(microbatch).translate(_SUBSCRIPT)}","cat":"{word}",{time},{where},'
            f'"cname":"{_COLOURS[microbatch % len(_COLOURS)]}","args":{{"action":"{stage}{letter}{microbatch}",'
            f'"kind":"{word}","stage":{stage},"microbatch":{microbatch},"pipeline":{pipeline}}}}}'
        )


def _closing(timeline: Timeline, stage: int, where: str) -> Iterator[str]:
    """All-reduce and optimizer of a slot, where they take time."""
    for name, start_s, end_s in (
        ("all-reduce", timeline.reduce_start_s, timeline.update_start_s),
        ("optimizer", timeline.update_start_s, timeline.update_end_s),
    ):
        if end_s[stage] > start_s[stage]:
            (time,) = complete(start_s[stage : stage + 1], end_s[stage : stage + 1])
            yield f'{{"name":"{name}","cat":"{name}",{time},{where},"args":{{"kind":"{name}","stage":{stage}}}}}'


def _transfers(moved: Transfers, rows: Ints, where: str, size_bytes: float) -> Iterator[str]:
    columns = (
        moved.backward[rows],
        moved.source[rows],
        moved.target[rows],
        moved.microbatch[rows],
        moved.pipeline[rows],
    )
    times = complete(moved.start_s[rows], moved.end_s[rows])
    arrivals = nanoseconds(moved.arrive_s[rows]).tolist()
    for time, arrive, backward, source, target, microbatch, pipeline in zip(
        times, arrivals, *(column.tolist() for column in columns), strict=True
    ):
        letter, word = ("G", "gradient") if backward else ("A", "activation")
        yield (
            f'{{"name":"{letter}{str(microbatch).translate(_SUBSCRIPT)} p{pipeline}","cat":"{word}",{time},{where},'
            f'"cname":"{_COLOURS[microbatch % len(_COLOURS)]}","args":{{"kind":"{word}","microbatch":{microbatch},'
            f'"pipeline":{pipeline},"stage":{source},"target_stage":{target},"bytes":{round(size_bytes)},"arrives_us":{microseconds(arrive)}}}}}'
        )


def _flow_events(part: _Part, numbers: Iterator[int]) -> Iterator[str]:
    """Flow events, each strictly inside its slice."""
    timeline, pids = part.step.timeline, part.pids
    actions, moved = timeline.actions, timeline.transfers
    action_track, transfer_track = _tracks_of_rows(timeline, part.tracks)
    chains = flows(timeline)
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
            f'"pid":{pids[track]},"tid":{part.tid(track)},"ts":{microseconds(ns)}}}'
        )

    for source, leave, channel, enter, target, arrive in points.tolist():
        number = next(numbers)
        yield event('"s"', number, source, leave)
        if channel != NONE:
            yield event('"t"', number, channel, enter)
        yield event('"f","bp":"e"', number, target, arrive)


def _tracks_of_rows(timeline: Timeline, tracks: list[_Track]) -> tuple[Ints, Ints]:
    """Per action and per transfer: the index of its track; NONE for one not drawn or too short to hold a flow."""
    actions, moved = timeline.actions, timeline.transfers
    action_track, transfer_track = np.full(len(actions), NONE), np.full(len(moved), NONE)
    for index, track in enumerate(tracks):
        (action_track if isinstance(track, SlotTrack) else transfer_track)[track.rows] = index
    for columns, of_row in ((actions, action_track), (moved, transfer_track)):
        of_row[nanoseconds(columns.end_s) - nanoseconds(columns.start_s) < 2] = NONE
    return action_track, transfer_track
