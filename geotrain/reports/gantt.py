"""The spans of a step as compact columns, for the timeline that report.js draws."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geotrain.action import Kind
from geotrain.cost import transfer_bytes
from geotrain.reports.tracks import WAN, ChannelTrack, SlotTrack, Step, channel_tracks, slot_tracks
from geotrain.reports.words import KIND_WORDS, datacenters
from geotrain.simulation.result import Result
from geotrain.timeline import Floats, Ints, Timeline
from geotrain.units import format_traffic

# What spans can be, after the kinds of action: name on screen and name of its colour in report.css.
_ACTIONS = [(KIND_WORDS[kind], KIND_WORDS[kind].replace(" ", "-")) for kind in Kind]
_OTHERS = [
    ("all-reduce", "all-reduce"),
    ("optimizer", "optimizer"),
    ("activation", "activation"),
    ("gradient", "gradient"),
    ("prefill", "prefill"),
]
KINDS = _ACTIONS + _OTHERS
_REDUCE, _UPDATE, _ACTIVATION, _GRADIENT, PREFILL = range(len(_ACTIONS), len(KINDS))
_TICKS = 2**32 - 1


@dataclass(frozen=True, kw_only=True)
class Gantt:
    """What report.js needs: a description for JSON, and the columns as base64."""

    description: dict[str, Any]
    columns: str


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Columns of one track."""

    start_s: Floats
    end_s: Floats
    kind: Ints
    """Numbers of KINDS."""
    microbatch: Ints
    other: Ints
    """Chunk of an action, pipeline of a transfer, tokens of a prefill."""


def gantt(result: Result) -> Gantt:
    """All slots and WAN channels."""
    tracks: list[SlotTrack | ChannelTrack] = [*slot_tracks(result), *channel_tracks(result)]
    spans = [track_spans(result, track) for track in tracks]
    about = {
        "stages": result.timeline.num_stages,
        "copies": result.timeline.copies,
        "groups": [*datacenters(result.plan), WAN],
        "tracks": _descriptions(result, tracks, spans),
    }
    return packed(spans, result.step_time_s, about)


def packed(spans: Sequence[Spans], length_s: float, about: dict[str, Any]) -> Gantt:
    """The tracks' columns of start, length, microbatch, other and kind, one after the other."""
    start = _ticks(np.concatenate([part.start_s for part in spans]), length_s)
    end = _ticks(np.concatenate([part.end_s for part in spans]), length_s)
    microbatch, other, kind = (
        np.concatenate([getattr(part, name) for part in spans]) for name in ("microbatch", "other", "kind")
    )
    columns = [start.astype("<u4"), (end - start).astype("<u4"), microbatch.astype("<u4"), other.astype("<u2")]
    data = b"".join(column.tobytes() for column in [*columns, kind.astype("u1")])
    used = set(np.unique(kind).tolist())
    description = {
        "step": float(length_s),
        "ticks": _TICKS,
        "spans": len(start),
        "kinds": [
            {
                "name": name,
                "colour": colour,
                "used": number in used,
                "letter": Kind(number).name if number < len(Kind) else "",
            }
            for number, (name, colour) in enumerate(KINDS)
        ],
        **about,
    }
    return Gantt(description=description, columns=base64.b64encode(data).decode("ascii"))


def _ticks(seconds: Floats, length_s: float) -> Ints:
    scaled = np.rint(seconds / length_s * _TICKS) if length_s > 0 else np.zeros(len(seconds))
    return np.clip(scaled, 0, _TICKS).astype(np.int64)


def track_spans(step: Step, track: SlotTrack | ChannelTrack) -> Spans:
    """What is on a track; of a slot also its all-reduce and optimizer, where they take time."""
    return _slot(step.timeline, track) if isinstance(track, SlotTrack) else _channel(step.timeline, track)


def _slot(timeline: Timeline, track: SlotTrack) -> Spans:
    rows = track.rows
    actions = timeline.actions
    edges = [times[track.stage] for times in (timeline.reduce_start_s, timeline.update_start_s, timeline.update_end_s)]
    ends = np.array([[edges[0], edges[1], _REDUCE], [edges[1], edges[2], _UPDATE]])
    ends = ends[ends[:, 1] > ends[:, 0]]
    none = np.zeros(len(ends), dtype=np.int64)
    return Spans(
        start_s=np.concatenate([actions.start_s[rows], ends[:, 0]]),
        end_s=np.concatenate([actions.end_s[rows], ends[:, 1]]),
        kind=np.concatenate([actions.kind[rows], ends[:, 2].astype(np.int64)]),
        microbatch=np.concatenate([actions.microbatch[rows], none]),
        other=np.concatenate([actions.stage[rows] // timeline.num_stages, none]),
    )


def _channel(timeline: Timeline, track: ChannelTrack) -> Spans:
    moved, rows = timeline.transfers, track.rows
    return Spans(
        start_s=moved.start_s[rows],
        end_s=moved.end_s[rows],
        kind=np.where(moved.backward[rows], _GRADIENT, _ACTIVATION),
        microbatch=moved.microbatch[rows],
        other=moved.pipeline[rows],
    )


def _descriptions(
    result: Result, tracks: list[SlotTrack | ChannelTrack], spans: list[Spans]
) -> list[dict[str, str | int]]:
    groups, size = datacenters(result.plan), format_traffic(transfer_bytes(result.plan.job))
    described: list[dict[str, str | int]] = []
    for track, part in zip(tracks, spans, strict=True):
        entry: dict[str, str | int] = {"name": track.name, "short": track.short, "count": len(part.kind)}
        if isinstance(track, SlotTrack):
            entry |= {"group": groups.index(track.datacenter), "pipeline": track.pipeline, "stage": track.stage}
        else:
            entry |= {"group": len(groups), "size": size}
        described.append(entry)
    return described
