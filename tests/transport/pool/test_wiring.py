"""How the nodes of a pool find each other over TCP, while others call that have no place there."""

from contextlib import ExitStack

import pytest

from geotrain.transport import Channel, DeadlineError, Listener, RefusedError, connect
from geotrain.transport.pool import Endpoint, dialers, join
from tests.threads import together
from tests.transport.pairs import QUICK, insecure
from tests.transport.pool.cells import header, noise

JOB = "j"
PATIENCE_S = 60.0


def endpoint(node: str, listener: Listener) -> Endpoint:
    host, port = listener.address
    return Endpoint(node=node, host=host, port=port)


def test_the_lower_name_dials():
    assert dialers("east-1", ["east-0", "east-1", "east-2"], "south-1") == {("east-0", "lan")}
    assert dialers("south-1", ["south-0", "south-1"], "east-1") == {("south-0", "lan"), ("east-1", "wan")}


def test_a_stranger_does_not_end_the_pool():
    with ExitStack() as stack:
        names = ["a", "b"]
        at = {name: stack.enter_context(Listener(identity=insecure(name), settings=QUICK)) for name in names}
        stranger = connect(
            *at["b"].address, identity=insecure("x"), peer="b", channel="wan", settings=QUICK, deadline_s=PATIENCE_S
        )
        stack.callback(stranger.close, deadline_s=0)
        made: dict[str, Channel] = {}

        def node(name: str, other: str) -> None:
            made[name] = join(
                listener=at[name],
                identity=insecure(name),
                here=[endpoint(name, at[name])],
                there=[endpoint(other, at[other])],
                wan=QUICK,
                deadline_s=PATIENCE_S,
            )
            stack.callback(made[name].close, deadline_s=0)

        together(lambda: node("a", "b"), lambda: node("b", "a"))
        with pytest.raises(RefusedError, match="this node has no place here"):
            connect(
                *at["b"].address, identity=insecure("y"), peer="b", channel="wan", settings=QUICK, deadline_s=PATIENCE_S
            )
        sent = header(0, 0)
        made["a"].send(sent, noise(1000), deadline_s=PATIENCE_S)
        assert made["b"].receive(deadline_s=PATIENCE_S).data == noise(1000)
        assert at["b"].turned_away == ["x", "y"]


def test_who_waits_in_vain_says_for_whom_and_who_came_instead():
    with ExitStack() as stack:
        here, there = (stack.enter_context(Listener(identity=insecure(name), settings=QUICK)) for name in "ba")
        stranger = connect(
            *here.address, identity=insecure("x"), peer="b", channel="wan", settings=QUICK, deadline_s=PATIENCE_S
        )
        stack.callback(stranger.close, deadline_s=0)
        with pytest.raises(DeadlineError, match=r"^a: did not come within 0.5 s; turned away: x$"):
            join(
                listener=here,
                identity=insecure("b"),
                here=[endpoint("b", here)],
                there=[endpoint("a", there)],
                wan=QUICK,
                deadline_s=0.5,
            )
