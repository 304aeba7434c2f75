"""Figures that others have published, or that arithmetic gives."""

import numpy as np
import pytest

from geotrain.simulation import simulate
from geotrain.simulation.simulate import run
from tests.simulation.plans import make_plan

# P, M, F, input gradient, weight gradient, hop latency in ms; share of a microbatch's memory that waits for W
# (32 h of 34 h + 5 a s); bubble rates of 1F1B, ZB-1p, ZB-2p. Zero Bubble Pipeline Parallelism, ICLR'24.
ZERO_BUBBLE = [
    pytest.param(8, 24, 18.522, 18.086, 9.337, 0.601, 0.366, (0.2431, 0.1585, 0.0433), id="1.5B"),
    pytest.param(8, 64, 29.935, 29.621, 19.388, 0.535, 0.432, (0.1091, 0.0554, 0.0010), id="6.2B"),
    pytest.param(16, 64, 11.307, 11.254, 8.101, 0.379, 0.432, (0.2082, 0.1088, 0.0054), id="14.6B"),
    pytest.param(32, 96, 10.419, 10.207, 7.715, 0.408, 0.432, (0.2646, 0.1421, 0.0038), id="28.3B"),
]


@pytest.mark.parametrize(("stages", "microbatches", "f", "i", "w", "hop", "kept", "rates"), ZERO_BUBBLE)
def test_zero_bubble_rates(
    stages: int, microbatches: int, f: float, i: float, w: float, hop: float, kept: float, rates: tuple[float, ...]
) -> None:
    """The rate is that of the slot whose first and last action are furthest apart: the next step may overlap."""

    def rate(schedule: str) -> float:
        plan = make_plan(
            forward=[f] * stages, backward=[i + w] * stages, weight=[w] * stages,
            occupancy=[0.0] * (stages - 1), latency=[hop] * (stages - 1), microbatches=microbatches,
            schedule=schedule, activation_bytes=1000, weight_grad_bytes=kept * 1000,
        )  # fmt: skip
        played, _ = run(plan)
        span = float(played.problem.seconds(np.array(played.longest_span_ticks))) * 1e3
        return (span - microbatches * (f + i + w)) / span

    published_1f1b, published_1p, published_2p = rates
    assert round(rate("1f1b"), 4) == published_1f1b
    assert round(rate("zero-bubble"), 4) <= published_1p
    assert round(rate("zero-bubble-2p"), 4) <= published_2p


@pytest.mark.parametrize(
    ("hop", "as_latency", "as_occupancy"), [(1, 73, 73), (2, 89, 89), (5, 137, 141), (10, 217, 231)]
)
def test_latency_is_not_occupancy(hop: float, as_latency: float, as_occupancy: float) -> None:
    """Strict 1F1B, four stages, one hop in the middle, 16 microbatches, F = 1, B = 2."""

    def step(occupancy: float, latency: float) -> float:
        plan = make_plan(
            forward=[1] * 4, backward=[2] * 4, occupancy=[None, occupancy, None], latency=[0, latency, 0],
            microbatches=16, schedule="1f1b",
        )  # fmt: skip
        return simulate(plan).step_time_s * 1e3

    assert step(0, hop) == pytest.approx(as_latency)
    assert step(hop, 0) == pytest.approx(as_occupancy)


@pytest.mark.parametrize("pipelines", [3, 4])
def test_the_physics_of_the_published_claim(pipelines: int) -> None:
    """GPT-A proportions: four stages over three data centers, four microbatches, 40 ms, one connection or many."""

    def step(schedule: str, one_in: float, sharing: str = "spatial") -> float:
        """A pair carries a microbatch in 53.7 ms at 5 Gbit/s; one connection of 1.465 MB windows is 17 times slower."""
        plan = make_plan(
            forward=[12.5] * 4, backward=[25] * 4, recompute=[12.5] * 4,
            occupancy=[None, one_in, one_in], latency=[0, 20, 20],
            microbatches=4, pipelines=pipelines, schedule=schedule, sharing=sharing,
        )  # fmt: skip
        return simulate(plan).step_time_s

    many, one = 33.554432 / 0.625, 33.554432 / 0.036625
    atlas = step("atlas", many, "temporal")
    for schedule in ("gpipe", "1f1b", "varuna"):
        assert 12 < step(schedule, one) / atlas < 20
        assert 1.1 < step(schedule, many) / atlas < 2
