"""Tenants take turns: the order in which requests are let in, without a clock."""

import asyncio

from geotrain.serving.http.turns import Turns


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_one_tenant_never_has_all_places_and_those_that_wait_take_turns():
    async def story() -> None:
        turns, order = Turns(2), []

        async def ask(tenant: str) -> None:
            await turns.enter(tenant)
            order.append(tenant)

        tasks = [asyncio.create_task(ask(tenant)) for tenant in ("ada",) * 50]
        await settle()
        assert order == ["ada"]  # one place is left
        tasks += [asyncio.create_task(ask(tenant)) for tenant in ("bob", "bob", "eve", "bob")]
        await settle()
        assert order == ["ada", "bob"]  # at once
        for left, next_in in (("ada", "ada"), ("ada", "eve"), ("bob", "bob"), ("eve", "ada")):
            turns.leave(left)
            await settle()
            assert order.pop() == next_in
        for task in tasks:
            task.cancel()

    asyncio.run(story())


def test_a_request_that_is_given_up_leaves_its_place_to_the_next():
    async def story() -> None:
        turns = Turns(2)
        await turns.enter("ada")
        waiting = [asyncio.create_task(turns.enter("ada")) for _ in range(3)]
        await settle()
        waiting[0].cancel()
        await settle()
        turns.leave("ada")
        waiting[1].cancel()  # it has been given the place, and does not know it yet
        await settle()
        assert waiting[2].done() and not waiting[2].cancelled()
        turns.leave("ada")
        await turns.enter("ada")

    asyncio.run(story())
