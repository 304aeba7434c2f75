"""A step as tracks of spans, for the timeline of a page and for charts."""

import numpy as np

from geotrain.cost import transfer_bytes
from geotrain.reports.html.timeline import ACTIVATION, ALL_REDUCE, GRADIENT, OPTIMIZER, Gantt, Spans, packed
from geotrain.reports.step.tracks import WAN, ChannelTrack, SlotTrack, Step, channel_tracks, slot_tracks
from geotrain.reports.words import datacenters
from geotrain.simulation.result import Result
from geotrain.timeline import Timeline
from geotrain.units import format_traffic


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


def track_spans(step: Step, track: SlotTrack | ChannelTrack) -> Spans:
    """What is on a track; of a slot also its all-reduce and optimizer, where they take time."""
    return _slot(step.timeline, track) if isinstance(track, SlotTrack) else _channel(step.timeline, track)


def _slot(timeline: Timeline, track: SlotTrack) -> Spans:
    rows = track.rows
    actions = timeline.actions
    edges = [times[track.stage] for times in (timeline.reduce_start_s, timeline.update_start_s, timeline.update_end_s)]
    ends = np.array([[edges[0], edges[1], ALL_REDUCE], [edges[1], edges[2], OPTIMIZER]])
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
        kind=np.where(moved.backward[rows], GRADIENT, ACTIVATION),
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
