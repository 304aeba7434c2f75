import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.action import Action, Kind
from geotrain.errors import InputError

actions = st.builds(Action, st.integers(0, 2**16 - 1), st.sampled_from(Kind), st.integers(0, 2**28 - 1))


def test_an_action_reads_as_stage_kind_microbatch():
    assert str(Action(2, Kind.F, 0)) == "2F0"
    assert Action.parse("12W345") == Action(12, Kind.W, 345)


@given(actions)
def test_text_and_number_lead_back_to_the_action(action: Action):
    assert Action.parse(str(action)) == action
    assert Action.unpack(action.code) == action


@given(actions, actions)
def test_different_actions_have_different_numbers(one: Action, other: Action):
    assert (one.code == other.code) == (one == other)


@pytest.mark.parametrize("text", ["", "F0", "2X0", "2F", "2F-1", "2F0 3F0"])
def test_what_is_no_action_is_refused(text: str):
    with pytest.raises(InputError) as caught:
        Action.parse(text)
    assert str(caught.value) == f"{text!r} is not an action such as '2F0' (stage 2, forward, microbatch 0)"
