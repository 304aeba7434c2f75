from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.action import Action, Kind
from geotrain.errors import InputError
from geotrain.plan import ScheduleName
from geotrain.schedule import SCHEDULES, Orders, Rules, candidates
from tests.schedule.shapes import shape

actions = st.builds(Action, st.integers(0, 99), st.sampled_from(Kind), st.integers(0, 999))


@given(st.lists(st.lists(actions, min_size=1), min_size=1))
def test_orders_read_back_from_their_text(slots: list[list[Action]]):
    orders = Orders.of([action.code for action in slot] for slot in slots)
    assert list(Orders.parse(str(orders))) == list(orders) == slots


def test_text_may_be_indented_and_spaced_as_one_likes():
    orders = Orders.parse("""
        0F0   0B0

        1F0   1B0
    """)
    assert str(orders) == "0F0 0B0\n1F0 1B0"


def test_text_that_is_no_action_is_refused_by_its_word():
    with pytest.raises(InputError, match=r"^'0X0' is not an action such as '2F0'"):
        Orders.parse("0F0 0X0")


def test_every_name_a_plan_may_use_has_a_schedule():
    assert {*SCHEDULES, "auto"} == set(get_args(ScheduleName))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved"])
def test_a_fixed_schedule_is_one_list_per_slot(name: ScheduleName):
    (orders,) = candidates(name, shape(3, 6, chunks=2 if name == "interleaved" else 1))
    assert isinstance(orders, Orders)
    assert [codes.dtype for codes in orders.codes] == [np.int64] * 3


@pytest.mark.parametrize("name", ["varuna", "atlas"])
def test_a_work_conserving_schedule_runs_ahead_as_far_as_room_allows(name: ScheduleName):
    assert candidates(name, shape(3, 6, room=[4, 1, 6])) == [Rules(ahead=(4, 1, 6))]
