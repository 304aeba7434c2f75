"""What a service survives: killed and frozen processes, and clients that leave. Every request ends, nothing is kept."""

import asyncio
import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from geotrain.prefill.predictor import PrefillTime
from geotrain.serving.contract import Broken, Busy, Prompt
from geotrain.serving.joining import Listener, connect
from geotrain.serving.service import DECODER, Service
from geotrain.serving.wire import Party, Wire
from tests.serving import live
from tests.serving.prefilling import prompt as ids_of
from tests.training.launch.runs import alive

SLOW = PrefillTime(fixed_s=0.8)
DEADLINE_S = 40.0
# A service has half a dozen processes, and each of them torch.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


async def until(true: Callable[[], object]) -> None:
    """Wait for something, but not for ever."""
    async with asyncio.timeout(DEADLINE_S):
        while not true():  # noqa: ASYNC110 -- there is no event: it happens elsewhere
            await asyncio.sleep(0.02)


async def nothing_kept(made: Service) -> None:
    """By anybody, as they say themselves."""
    await until(lambda: made.requests.under_way == 0)
    assert made.requests.reserved_tokens == 0
    made.desk.held_tokens.clear()
    await until(lambda: len(made.desk.held_tokens) == 5 and not any(made.desk.held_tokens.values()))


async def ending(made: Service, asked: Prompt) -> list[int | None] | Exception:
    """The answer's tokens, or the error."""
    try:
        return [piece.token for piece in await live.answer(made, asked)]
    except (Broken, Busy) as error:
        return error


def strike(made: Service, name: str, number: int) -> int:
    """Send a signal; the process that got it."""
    pid = made.staff.pid(name)
    assert pid is not None
    os.kill(pid, number)
    return pid


def parent(pid: int | None) -> int:
    """Of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def bookings(directory: Path, slot: str) -> set[int]:
    """That were worked on there."""
    lines = map(json.loads, (directory / "prefill.jsonl").read_text().splitlines())
    return {line["booking"] for line in lines if line["what"] == "work" and line["slot"] == slot}


@pytest.mark.parametrize(
    ("number", "silent_s"),
    [pytest.param(signal.SIGKILL, 30.0, id="killed"), pytest.param(signal.SIGSTOP, 15.0, id="frozen")],
)
def test_a_worker_is_lost_with_prompts_on_it(tmp_path: Path, number: int, silent_s: float):
    async def story() -> None:
        async with live.running(tmp_path, degree=2, times=SLOW, emulated=True, silent_s=silent_s) as made:
            expected = await ending(made, live.prompt(ids_of(40)))
            prompts = [live.prompt(ids_of(40), name=f"p{n}") for n in range(4)]
            asked = [asyncio.create_task(ending(made, one)) for one in prompts]
            await asyncio.sleep(0.3)
            victim = strike(made, "east-1", number)
            ends = await asyncio.gather(*asked)
            assert all(isinstance(end, Broken) or end == expected for end in ends)
            assert expected in ends
            await until(lambda: "east-1" in made.desk.held_tokens and made.staff.pid("east-1") != victim)
            before = max(bookings(tmp_path, "east-0") | bookings(tmp_path, "south-0"))
            again = [ending(made, live.prompt(ids_of(40), name=f"q{n}")) for n in range(4)]
            assert await asyncio.gather(*again) == [expected] * 4
            await until(lambda: max(bookings(tmp_path, "east-1"), default=0) > before)
            await nothing_kept(made)

    asyncio.run(story())


def test_the_decoder_is_killed_while_answers_stream(tmp_path: Path):
    async def story() -> None:
        async with live.running(tmp_path, degree=2) as made:
            expected = await ending(made, live.prompt(ids_of(40)))
            streams = [made.reception.submit(live.prompt(ids_of(40), name=f"s{n}", max_tokens=2000)) for n in range(3)]
            for stream in streams:
                await anext(stream)
            strike(made, DECODER, signal.SIGKILL)
            for stream in streams:
                with pytest.raises(Broken, match="the decoder was lost"):
                    async for _ in stream:
                        pass
            assert made.reception.ready() == "the decoder is not there"
            with pytest.raises(Busy):
                await live.answer(made, live.prompt(ids_of(40), name="too-soon"))
            await until(lambda: made.reception.ready() is None)
            again = [ending(made, live.prompt(ids_of(40), name=f"a{n}")) for n in range(4)]
            assert await asyncio.gather(*again) == [expected] * 4
            await nothing_kept(made)

    asyncio.run(story())


def test_when_every_instance_lacks_a_worker_nobody_is_ready(tmp_path: Path):
    async def story() -> None:
        async with live.running(tmp_path, degree=2) as made:
            expected = await ending(made, live.prompt(ids_of(40)))
            for name in ("east-0", "south-1"):
                strike(made, name, signal.SIGKILL)
            await until(lambda: made.reception.ready() == "the workers are not there")
            await until(lambda: made.reception.ready() is None)
            assert await ending(made, live.prompt(ids_of(40), name="again")) == expected

    asyncio.run(story())


def test_clients_leave_at_any_moment(tmp_path: Path):
    chance = random.Random(8)

    async def one(made: Service, number: int) -> None:
        asked = live.prompt(ids_of(chance.choice([5, 40, 300])), name=f"c{number}", max_tokens=chance.choice([1, 300]))
        try:
            async with asyncio.timeout(chance.choice([0.0, 0.01, 0.1, 0.5, 1.0, 3.0])):
                await live.answer(made, asked)
        except (TimeoutError, Busy):
            pass

    async def story() -> None:
        quick = PrefillTime(fixed_s=0.1)
        async with live.running(tmp_path, degree=2, chunk=100, times=quick, emulated=True) as made:
            expected = await ending(made, live.prompt(ids_of(40)))
            await asyncio.gather(*(one(made, number) for number in range(60)))
            await nothing_kept(made)
            assert await ending(made, live.prompt(ids_of(40), name="last")) == expected

    asyncio.run(story())


def test_the_process_that_all_are_forked_from_is_killed(tmp_path: Path):
    async def story() -> None:
        async with live.running(tmp_path, degree=2) as made:
            expected = await ending(made, live.prompt(ids_of(40)))
            before = {name: made.staff.pid(name) for name in made.desk.held_tokens}
            os.kill(parent(before["east-0"]), signal.SIGKILL)
            await until(lambda: not any(alive(pid) for pid in before.values()))
            await until(lambda: all(made.staff.pid(name) not in {None, pid} for name, pid in before.items()))
            await until(lambda: made.reception.ready() is None and len(made.desk.held_tokens) == 5)
            assert await ending(made, live.prompt(ids_of(40), name="again")) == expected
            await nothing_kept(made)

    asyncio.run(story())


def test_who_is_replaced_leaves_the_place_to_the_next(tmp_path: Path):
    me, address = Party(role="worker", name="east-0", secret="s"), str(tmp_path / "east-0.sock")

    async def serve(wire: Wire) -> None: ...

    async def story() -> None:
        old, new = Listener(me, serve), Listener(me, serve)
        await old.open(address)
        await new.open(address)
        await old.close()
        (await connect(address, me)).abort()
        await new.close()

    asyncio.run(story())
    assert not any(tmp_path.iterdir())


def test_keys_and_values_that_do_not_come_are_given_up(tmp_path: Path):
    async def story() -> None:
        async with live.running(tmp_path, degree=2, dc="east", lease_s=5.0, silent_s=50.0) as made:
            expected = await ending(made, live.prompt(ids_of(40)))
            strike(made, "east-1", signal.SIGSTOP)
            with pytest.raises(Broken, match="did not come within 5 s"):
                await live.answer(made, live.prompt(ids_of(40), name="stuck"))
            assert (made.requests.under_way, made.requests.reserved_tokens) == (0, 0)
            strike(made, "east-1", signal.SIGCONT)
            assert await ending(made, live.prompt(ids_of(40), name="again")) == expected
            made.desk.held_tokens.clear()
            await until(lambda: len(made.desk.held_tokens) == 3 and not any(made.desk.held_tokens.values()))

    asyncio.run(story())
