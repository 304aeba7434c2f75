"""A live run in small: two data centers, steps of a second, requests for two seconds and then none for two."""

from typing import Any

import numpy as np

from geotrain.action import Kind
from geotrain.reports.live import Blocks, Live, Side
from geotrain.simulation.prefill.outcome import Spans, TrainingSpans
from tests.training.plans import plan

PLAN = plan(("east", "south"))
BLOCKS = Blocks(on_s=2.0, off_s=2.0, rounds=2)


def spans(*rows: tuple[int, float, float]) -> Spans:
    """Slot, start and end of each."""
    slot, start_s, end_s = zip(*rows, strict=True) if rows else ((), (), ())
    return Spans(
        slot=np.array(slot, dtype=np.int64),
        start_s=np.array(start_s, dtype=np.float64),
        end_s=np.array(end_s, dtype=np.float64),
        request=np.arange(len(rows)),
        tokens=np.zeros(len(rows), dtype=np.int64),
    )


def side(**changes: Any) -> Side:
    """Each slot trains for half of every step, and prefills for a quarter of those under load."""
    loaded = [0.0, 1.0, 4.0, 5.0]
    fields: dict[str, Any] = {
        "blocks": BLOCKS,
        "edges_s": np.arange(-2.0, 9.0),
        "training_s": np.full(10, 1.0),
        "num_slots": 2,
        "prefill": spans(*((slot, at_s + 0.5, at_s + 0.75) for at_s in loaded for slot in (0, 1))),
        "ttft_s": np.array([0.1, 0.2, 0.3]),
        "rejected": 1,
        "failed": 0,
        "overruns": 2,
    }
    return Side(**(fields | changes))


def live(**changes: Any) -> Live:
    steps = np.repeat(np.arange(-2.0, 8.0), 2)
    fields: dict[str, Any] = {
        "plan": PLAN,
        "on": "testbed",
        "trace": "a trace",
        "rate_rps": 1.0,
        "most_tokens": 2000,
        "like": "llama-2-13b",
        "slo_s": 2.0,
        "training": TrainingSpans(
            slot=np.tile([0, 1], 10),
            kind=np.full(20, Kind.F),
            stage=np.tile([0, 1], 10),
            microbatch=np.zeros(20, dtype=np.int64),
            start_s=steps,
            end_s=steps + 0.5,
        ),
        "measured": side(),
        "simulated": side(overruns=0),
    }
    return Live(**(fields | changes))
