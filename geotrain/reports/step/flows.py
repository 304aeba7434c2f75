"""Who waited for whom: from each action over its transfer, if it left one, to the action that used the result."""

from dataclasses import dataclass

import numpy as np

from geotrain.action import MICROBATCH_SHIFT, PIPELINE_SHIFT, STAGE_SHIFT, Kind
from geotrain.timeline import Ints, Timeline

NONE = -1


@dataclass(frozen=True, kw_only=True)
class Flows:
    """Row numbers in the timeline's actions and transfers; one row a flow."""

    producer: Ints
    transfer: Ints
    """NONE where the boundary took no time."""
    consumer: Ints


def flows(timeline: Timeline) -> Flows:
    """Activations going on and gradients going back, between neighbouring stages."""
    actions, moved = timeline.actions, timeline.transfers
    forward = np.flatnonzero(actions.kind == Kind.F)
    backward = np.flatnonzero((actions.kind == Kind.B) | (actions.kind == Kind.I))
    code = _codes(actions.pipeline, actions.stage, actions.microbatch)
    sent = _codes(moved.pipeline, moved.stage, moved.microbatch)
    step = np.int64(1) << STAGE_SHIFT
    parts = [
        _match(forward, code, step, np.flatnonzero(~moved.backward), sent),
        _match(backward, code, -step, np.flatnonzero(moved.backward), sent),
    ]
    producer, transfer, consumer = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Flows(producer=producer, transfer=transfer, consumer=consumer)


def _match(rows: Ints, code: Ints, step: np.int64, moved: Ints, sent: Ints) -> tuple[Ints, Ints, Ints]:
    consumer = _find(code[rows] + step, code, rows)
    used = consumer != NONE
    transfer = _find(code[rows], sent, moved)
    return rows[used], transfer[used], consumer[used]


def _find(wanted: Ints, codes: Ints, rows: Ints) -> Ints:
    """Per wanted code, which of `rows` has it; NONE where no row does."""
    if not len(rows):
        return np.full(len(wanted), NONE)
    order = rows[np.argsort(codes[rows], kind="stable")]
    place = np.minimum(np.searchsorted(codes[order], wanted), len(order) - 1)
    return np.where(codes[order[place]] == wanted, order[place], NONE)


def _codes(pipeline: Ints, stage: Ints, microbatch: Ints) -> Ints:
    return pipeline << PIPELINE_SHIFT | stage << STAGE_SHIFT | microbatch << MICROBATCH_SHIFT
