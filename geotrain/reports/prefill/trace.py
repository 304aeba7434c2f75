"""Training and the prefill in its bubbles in the Chrome JSON trace-event format, which ui.perfetto.dev opens.

A process per data center with a track per slot, as in the trace of a step; training and prefill share the tracks.
Flows lead from piece to piece of a request, and each step begins with a mark.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from geotrain.action import Kind
from geotrain.files import writing
from geotrain.reports.html.timeline import KINDS
from geotrain.reports.prefill.timeline import Excerpt, FilledTrack, excerpt
from geotrain.reports.prefill.words import sentences
from geotrain.reports.step.perfetto import FIRST_THREAD, action_events, complete, metadata, microseconds
from geotrain.reports.step.tracks import nanoseconds
from geotrain.simulation.prefill.outcome import Spans, Study
from geotrain.timeline import Actions, Ints

_MOST_SPANS, _MOST_STEPS = 100_000, 20
"""Some 20 MB."""


def write_prefill_trace(study: Study, path: Path) -> str:
    """Write it piece by piece; returns which part of the study it shows."""
    part = excerpt(study, most_spans=_MOST_SPANS, most_steps=_MOST_STEPS)
    with writing(path) as file:
        file.writelines(prefill_trace(part))
    return part.said


def prefill_trace(part: Excerpt) -> Iterator[str]:
    """The text of the trace file, in pieces."""
    actions = _actions(part.study)
    where = {track.slot: f'"pid":{_pid(part, track)},"tid":{FIRST_THREAD + n}' for n, track in enumerate(part.tracks)}
    yield '{"traceEvents":[\n'
    yield ",\n".join(_names(part))
    for track in part.tracks:
        place = where[track.slot]
        for events in (_training(actions, track, place), _prefill(part.study.ours.spans, track, place)):
            yield "".join(f",\n{event}" for event in events)
    yield "".join(f",\n{event}" for event in _marks(part, where[0]))
    yield from _flows(part, where)
    about = {"about": " ".join(sentences(part.study)), "shown": part.said}
    yield f'\n],"otherData":{json.dumps(about, ensure_ascii=False)}}}\n'


def _actions(study: Study) -> Actions:
    training, stages = study.training, len(study.result.plan.stages)
    return Actions(
        kind=training.kind,
        stage=training.stage,
        microbatch=training.microbatch,
        pipeline=training.slot // stages,
        start_s=training.start_s,
        end_s=training.end_s,
    )


def _pid(part: Excerpt, track: FilledTrack) -> int:
    return 1 + part.datacenters.index(track.datacenter)


def _names(part: Excerpt) -> Iterator[str]:
    """Metadata events that name and sort the tracks."""
    named = set()
    for number, track in enumerate(part.tracks):
        pid, tid = _pid(part, track), FIRST_THREAD + number
        if pid not in named:
            named.add(pid)
            yield metadata("process_name", pid, tid, "name", track.datacenter)
            yield metadata("process_sort_index", pid, tid, "sort_index", pid)
        yield metadata("thread_name", pid, tid, "name", track.name)
        yield metadata("thread_sort_index", pid, tid, "sort_index", number)


def _training(actions: Actions, track: FilledTrack, where: str) -> Iterator[str]:
    closing = actions.kind[track.rows] >= len(Kind)
    yield from action_events(actions, track.rows[~closing], where)
    rows = track.rows[closing]
    times = complete(actions.start_s[rows], actions.end_s[rows])
    for time, kind in zip(times, actions.kind[rows].tolist(), strict=True):
        name, _ = KINDS[kind]
        yield f'{{"name":"{name}","cat":"{name}",{time},{where},"args":{{"kind":"{name}","stage":{track.stage}}}}}'


def _prefill(spans: Spans, track: FilledTrack, where: str) -> Iterator[str]:
    """All of one name, digits aside, and so of one colour."""
    rows = track.prefill
    times = complete(spans.start_s[rows], spans.end_s[rows])
    for time, request, tokens in zip(times, spans.request[rows].tolist(), spans.tokens[rows].tolist(), strict=True):
        args = (
            f'"kind":"prefill","request":{request},"tokens":{tokens},"stage":{track.stage},"pipeline":{track.pipeline}'
        )
        yield f'{{"name":"prefill {request}","cat":"prefill",{time},{where},"cname":"good","args":{{{args}}}}}'


def _marks(part: Excerpt, where: str) -> Iterator[str]:
    """Where steps begin, over all tracks."""
    for step, ns in zip(part.steps, nanoseconds(part.edges_s).tolist(), strict=False):
        yield f'{{"name":"step {step}","cat":"step","ph":"i","s":"g","ts":{microseconds(ns)},{where}}}'


def _flows(part: Excerpt, where: Mapping[int, str]) -> Iterator[str]:
    """From piece to piece of a request."""
    spans = part.study.ours.spans
    rows = np.sort(np.concatenate([track.prefill for track in part.tracks]))
    begin, end = nanoseconds(spans.start_s), nanoseconds(spans.end_s)
    rows = rows[end[rows] - begin[rows] >= 2]
    for request, pieces in _by_request(spans.request, rows):
        for number, row in enumerate(pieces):
            phase = '"s"' if number == 0 else '"f","bp":"e"' if number == len(pieces) - 1 else '"t"'
            place = where[int(spans.slot[row])]
            yield (
                f',\n{{"name":"request","cat":"flow","id":{request + 1},"ph":{phase},{place},'
                f'"ts":{microseconds(int(begin[row]) + 1)}}}'
            )


def _by_request(request: Ints, rows: Ints) -> Iterator[tuple[int, list[int]]]:
    """Requests of several pieces, and their rows by start."""
    pieces: dict[int, list[int]] = {}
    for row, number in zip(rows.tolist(), request[rows].tolist(), strict=True):
        pieces.setdefault(number, []).append(row)
    yield from ((number, found) for number, found in pieces.items() if len(found) > 1)
