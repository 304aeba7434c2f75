"""The fast simulator against the slow, exact one, over random pipelines."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.action import Kind
from geotrain.simulation import simulate
from tests.simulation.plans import make_plan
from tests.simulation.reference import Case
from tests.simulation.reference import simulate as reference

pytestmark = pytest.mark.slow


TENTHS = st.integers(1, 60).map(lambda tenths: tenths / 10)


@st.composite
def pipelines(draw: st.DrawFn) -> dict[str, Any]:
    stages = draw(st.integers(1, 12))
    each = st.lists(TENTHS, min_size=stages, max_size=stages)
    hop = st.one_of(st.none(), st.integers(1, 80).map(lambda tenths: tenths / 10))
    occupancy = draw(st.lists(hop, min_size=stages - 1, max_size=stages - 1))
    return {
        "forward": draw(each),
        "backward": draw(each),
        "occupancy": occupancy,
        "latency": [0.0 if o is None else draw(st.integers(0, 100)) / 10 for o in occupancy],
        "microbatches": draw(st.integers(1, 32)),
        "pipelines": draw(st.integers(1, 4)),
    }


def exact(value: float | None) -> Fraction:
    return Fraction(round((value or 0) * 10), 10)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "varuna"])
@given(case=pipelines(), cap=st.one_of(st.just(10**6), st.integers(1, 14)))
@settings(max_examples=120, deadline=None)
def test_equals_the_slow_simulation(schedule: str, case: dict[str, Any], cap: int) -> None:
    if schedule == "gpipe":
        cap = 10**6
    plan = make_plan(**case, schedule=schedule, cap=cap)
    result = simulate(plan)
    truth = reference(
        Case(
            forward=tuple(map(exact, case["forward"])),
            backward=tuple(map(exact, case["backward"])),
            hop_occupancy=tuple(map(exact, case["occupancy"])),
            hop_latency=tuple(map(exact, case["latency"])),
            cap=(cap,) * len(case["forward"]),
            M=case["microbatches"],
            K=1,
        ),
        schedule,
    )
    assert result.step_time_s == pytest.approx(float(truth.step_time) / 1e3, rel=1e-9)
    actions = result.timeline.actions
    order = np.lexsort((actions.microbatch, actions.kind, actions.stage))
    expected = sorted((s.stage, Kind[s.kind], s.microbatch, float(s.start) / 1e3) for s in truth.spans)
    assert [row[:3] for row in expected] == [
        (int(actions.stage[i]), Kind(actions.kind[i]), int(actions.microbatch[i])) for i in order
    ]
    assert actions.start_s[order] == pytest.approx([row[3] for row in expected], rel=1e-9, abs=1e-15)
