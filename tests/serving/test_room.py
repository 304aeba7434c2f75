"""The decoder's room between tenants, on a clock that stands still unless it is moved."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.serving.contract import Busy, Prompt, Sampling
from geotrain.serving.requests import Requests
from geotrain.serving.room import Room

ROOM = 1000


def takes(room: Room, tenant: str, tokens: int, now_s: float = 0.0) -> bool:
    try:
        room.take(tenant, tokens, ROOM, now_s)
    except Busy:
        return False
    return True


def fill(room: Room, tenant: str, tokens: int, now_s: float = 0.0) -> int:
    """As many requests as are taken."""
    count = 0
    while takes(room, tenant, tokens, now_s):
        count += 1
    return count


def test_a_tenant_alone_may_have_all_of_it():
    room = Room()
    assert fill(room, "ada", 100) == 10
    room.give_back("ada", 100)
    assert takes(room, "ada", 100)


@pytest.mark.parametrize("size", [100, 500, 900, 1000], ids=str)
def test_a_tenant_that_comes_back_at_once_does_not_keep_another_out(size: int):
    """As soon as room is given back, ada asks before bob does."""
    room = Room()
    held = fill(room, "ada", 100)
    rounds = 0
    while not takes(room, "bob", size):
        assert (held, rounds) != (0, 0) and rounds < 20, "bob never got in"
        room.give_back("ada", 100)
        held += fill(room, "ada", 100) - 1
        rounds += 1
    assert room.taken_tokens <= ROOM


def test_tenants_that_always_ask_have_equal_shares_in_the_end():
    room, held = Room(), {"ada": 0, "bob": 0}
    held["ada"] = fill(room, "ada", 100)
    for _ in range(20):
        for tenant in held:
            if held[tenant]:
                room.give_back(tenant, 100)
                held[tenant] -= 1
            # The one that was there first is always the quicker one.
            held["ada"] += fill(room, "ada", 100)
            held["bob"] += fill(room, "bob", 100)
    assert held == {"ada": 5, "bob": 5}


def test_a_third_gets_in_between_two_that_share_all():
    room = Room()
    for tenant in ("ada", "bob") * 2:
        assert takes(room, tenant, 250)
    assert not takes(room, "eve", 400)
    room.give_back("ada", 250)
    assert not takes(room, "ada", 250) and not takes(room, "eve", 400)
    room.give_back("bob", 250)
    assert not takes(room, "bob", 250) and takes(room, "eve", 400)


def test_a_tenant_that_stays_away_is_forgotten():
    room = Room()
    assert fill(room, "ada", 100) == 10
    assert not takes(room, "bob", 100)
    for _ in range(8):
        room.give_back("ada", 100)
    assert fill(room, "ada", 100, now_s=100.0) == 3, "half of it: bob may come back"
    assert fill(room, "ada", 100, now_s=131.0) == 5


def test_room_is_not_kept_for_long_for_a_tenant_that_does_not_come_back():
    room = Room()
    assert fill(room, "ada", 100) == 10
    assert not takes(room, "bob", 1000)
    for _ in range(9):
        room.give_back("ada", 100)
    assert not takes(room, "ada", 100, now_s=9.0)
    assert takes(room, "ada", 100, now_s=11.0)


def test_requests_take_room_on_their_tenants_account():
    async def story() -> None:
        requests = Requests()
        sampling = Sampling(max_tokens=50)
        prompts = [
            Prompt(id=f"{tenant}-{index}", model="m", tokens=(1,) * 50, sampling=sampling, tenant=tenant)
            for index in range(4)
            for tenant in ("ada", "bob")
        ]
        ada, bob = prompts[::2], prompts[1::2]
        first = requests.add(ada[0], 4 * 128)
        requests.add(bob[0], 4 * 128)
        requests.add(ada[1], 4 * 128)
        with pytest.raises(Busy):
            requests.add(ada[2], 4 * 128)
        requests.add(bob[1], 4 * 128)
        assert requests.reserved_tokens == 4 * 128
        requests.remove(first)
        requests.add(ada[3], 4 * 128)

    asyncio.run(story())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, ROOM), st.booleans()), max_size=60))
def test_no_more_is_taken_than_there_is(asked: list[tuple[str, int, bool]]):
    room, held = Room(), []
    for now, (tenant, tokens, ends) in enumerate(asked):
        if takes(room, tenant, tokens, float(now)):
            held.append((tenant, tokens))
        if ends and held:
            room.give_back(*held.pop(0))
        assert room.taken_tokens == sum(tokens for _, tokens in held) <= ROOM
    for one in held:
        room.give_back(*one)
    assert takes(room, "new", ROOM, float(len(asked)))
