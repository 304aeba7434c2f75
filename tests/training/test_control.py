"""The meeting of the leaders: who gets in, and what they may say."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from geotrain.errors import InputError, RunError
from geotrain.seating import Seating
from geotrain.training.control import Control, Meeting
from geotrain.transport import Channel, Direction, Header, RefusedError, Settings, TcpChannel, connect
from tests.ports import free_port
from tests.threads import together
from tests.training.plans import plan
from tests.transport.pairs import insecure, soon

pytestmark = pytest.mark.slow

JOB = "train-1"
PATIENCE_S = 60.0
SEATING = Seating(plan(("east", "south", "south")))
"""Two data centers: south-1 has a key and is no leader."""


def meeting(dc: str, port: int) -> Meeting:
    seat = SEATING.world(dc)[0]
    return Meeting(SEATING, seat, insecure(seat.name, JOB), ("127.0.0.1", port), 20.0)


def call(node: str, port: int, channel: str = "control") -> TcpChannel:
    """A process with a key of the run calls the control address."""
    return connect(
        "127.0.0.1",
        port,
        identity=insecure(node, JOB),
        peer="east-0",
        channel=channel,
        settings=Settings(connections=1),
        deadline_s=PATIENCE_S,
    )


STRANGERS = [
    pytest.param("south-1", "control", id="no leader"),
    pytest.param("south-0", "data", id="no control channel"),
    pytest.param("east-0", "control", id="this leader itself"),
]


@pytest.mark.parametrize(("node", "channel"), STRANGERS)
def test_a_stranger_is_turned_away_and_neither_ends_the_meeting_nor_passes_as_a_restart(node: str, channel: str):
    port = free_port()
    restarts: list[Exception] = []
    first, second = meeting("east", port), meeting("south", port)
    found: dict[str, Channel] = {}

    def strangers_before_the_leader() -> None:
        with pytest.raises(RefusedError, match="this node has no place here"):
            call(node, port, channel)
        found.update(second.open(PATIENCE_S))

    together(lambda: found.update(first.open(PATIENCE_S)), strangers_before_the_leader)
    first.on_restart = restarts.append
    try:
        assert found.keys() == {"east", "south"}
        with pytest.raises(RefusedError, match="this node has no place here"):
            call(node, port, channel)
        again = call("south-0", port)
        # In order: had the stranger been taken for a leader, it would be the first of these.
        assert soon(lambda: bool(restarts)) and [str(error) for error in restarts] == ["south-0: has restarted"]
        again.close(deadline_s=0)
    finally:
        for one in found.values():
            one.close(deadline_s=0)
        first.close()


def test_who_waits_in_vain_names_the_strangers_that_came():
    port = free_port()
    first = meeting("east", port)

    def stranger() -> None:
        with pytest.raises(RefusedError):
            call("south-1", port)

    with pytest.raises(RunError, match=rf"^south: did not come to 127.0.0.1:{port} within 3 s; turned away: south-1$"):
        together(lambda: first.open(3.0), stranger)
    first.close()


@contextmanager
def leaders() -> Iterator[tuple[Control, Channel]]:
    """The first leader's control, and the other end of its channel to the second."""
    port = free_port()
    first, second = meeting("east", port), meeting("south", port)
    with ExitStack() as stack:
        stack.callback(first.close)
        found: dict[str, Channel] = {}
        together(lambda: found.update(first.open(PATIENCE_S)), lambda: found.update(second.open(PATIENCE_S)))
        for one in found.values():
            stack.callback(one.close, deadline_s=0)
        yield Control(SEATING, SEATING.world("east")[0], {"south": found["south"]}, JOB, PATIENCE_S), found["east"]


def say(channel: Channel, data: bytes) -> None:
    header = Header(job=JOB, step=0, pipeline=0, stage=0, microbatch=0, direction=Direction.FORWARD)
    channel.send(header, data, deadline_s=PATIENCE_S)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"{", id="no JSON"),
        pytest.param(b"[" * 200_000 + b"]" * 200_000, id="nested too deeply to parse"),
        pytest.param(b"[1," + b"[" * 400 + b"]" * 400 + b"]", id="nested too deeply to pass on"),
        pytest.param(b"5", id="no list"),
        pytest.param(b"[1]", id="words of one process, of two"),
    ],
)
def test_words_without_sense_are_one_sentence(said: bytes):
    with leaders() as (control, other):
        say(other, said)
        with pytest.raises(RunError, match=r"^south-0: said something on the control channel that makes no sense"):
            control.gather("here")


def test_what_each_process_says_is_gathered_in_the_order_of_seats():
    with leaders() as (control, other):
        say(other, json.dumps(["second", {"deep": [[["third"]]]}]).encode())
        assert control.gather("first") == ["first", "second", {"deep": [[["third"]]]}]


def test_a_leader_that_says_too_much_at_once_is_stopped_before_it_takes_memory():
    with leaders() as (_, other), pytest.raises(InputError, match="take 67108864"):
        say(other, bytes((64 << 20) + 1))
