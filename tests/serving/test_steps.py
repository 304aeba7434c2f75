"""Steps of training as workers tell of them, also of training that begins anew."""

import math

import pytest

from geotrain.prefill.settings import Settings
from geotrain.serving.messages import Step
from geotrain.serving.site import site
from geotrain.serving.steps import Steps
from tests.serving import live
from tests.serving.prefilling import SHAPE


@pytest.fixture
def steps() -> Steps:
    here = site(live.small_plan(), SHAPE.shape(live.NAME), Settings(), dc=None)
    return Steps(here.scene.forecast(guard_s=0.001), [slot.row for slot in here.slots])


def told(number: int, begin_s: float, *, first: bool = False) -> Step:
    return Step(number=number, begin_s=begin_s, length_s=1.0, first=first)


def test_a_step_begins_once(steps: Steps):
    assert steps.heard(0, told(5, 100.0, first=True)) == 100.0
    assert steps.heard(1, told(5, 100.1, first=True)) is None
    assert steps.heard(1, told(6, 101.0)) == 101.0
    assert steps.heard(0, told(6, 101.2)) is None
    assert steps.heard(0, told(5, 100.0, first=True)) is None, "a worker that is slow"
    assert steps.heard(0, told(6, 101.2, first=True)) is None, "a worker that has been started again"
    assert steps.length_s == pytest.approx(1.0)


@pytest.mark.parametrize("number", [3, 5, 6])
def test_time_without_training_is_no_step(steps: Steps, number: int):
    """It goes on from a checkpoint: of long ago, before the step that it was in, or just behind it."""
    for slot in (0, 1):
        steps.heard(slot, told(4, 99.0))
        steps.heard(slot, told(5, 100.0 + slot))
    assert steps.heard(0, told(number, 160.0, first=True)) == 160.0
    assert math.isnan(steps.length_s)
    assert steps.heard(1, told(number, 160.1, first=True)) is None
    assert steps.heard(1, told(number + 1, 161.0)) == 161.0
    assert steps.length_s == pytest.approx(1.0)
