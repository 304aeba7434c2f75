"""Over the WAN go the bytes that were simulated, those between the two ends of a tied head too."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from geotrain.plan import Plan
from geotrain.simulation import simulate
from geotrain.training.options import Options
from tests.training.data import VOCAB, dataset
from tests.training.plans import MODEL, plan
from tests.training.team import Team, team

pytestmark = pytest.mark.slow
STEPS = 3


@pytest.fixture(scope="module")
def workers() -> Iterator[Team]:
    """Enough for three stages, or two and two pipelines."""
    with team(4) as made:
        yield made


def tied(*dcs: str, **choices: Any) -> Plan:
    job = {"model": MODEL | {"layers": len(dcs), "vocab": VOCAB, "tied_embeddings": True}}
    return plan(dcs, job=job, schedule="1f1b", **choices)


def assert_as_simulated(plan: Plan, reports: list[dict[str, Any]]) -> None:
    result = simulate(plan)
    swapped_bytes = 4 * VOCAB * plan.job.model.hidden
    assert sum(link.size_bytes for link in result.links) > 2 * swapped_bytes
    # What a step sent is acknowledged by the next, so steps after the first are complete.
    measured = (reports[-1]["wan_bytes"] - reports[0]["wan_bytes"]) / (STEPS - 1)
    assert measured == pytest.approx(sum(link.size_bytes for link in result.links), rel=0.02)


def test_a_training_sends_what_was_simulated(workers: Team, tmp_path: Path):
    options = Options(dc="", out=tmp_path / "run", data=dataset(tmp_path), steps=STEPS)
    decided = tied("east", "south", pipelines_per_cell=2)
    assert_as_simulated(decided, workers.train(decided, options))


def test_an_emulated_training_sends_what_was_simulated(workers: Team, tmp_path: Path):
    """The ends of three stages have a link of their own."""
    decided = tied("east", "south", "west")
    reports = workers.train(decided, Options(dc="", out=tmp_path, compute="emulated", steps=STEPS))
    assert_as_simulated(decided, reports)
