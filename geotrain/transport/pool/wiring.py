"""From the addresses of a cell's nodes on both sides of a boundary to the pool of one of them."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from geotrain.errors import InputError
from geotrain.transport.dialer import connect
from geotrain.transport.errors import DeadlineError, TransportError
from geotrain.transport.greeting import Identity
from geotrain.transport.interface import Channel
from geotrain.transport.listener import Listener
from geotrain.transport.pool.pool import pooled
from geotrain.transport.pool.settings import Pooling
from geotrain.transport.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a node of the cell listens."""

    node: str
    host: str
    port: int


def dialers(node: str, cell: Sequence[str], counterpart: str) -> set[tuple[str, str]]:
    """Return the nodes that dial `node`, each with the name of its channel: of two nodes the lower name dials."""
    kinds = dict.fromkeys(cell, "lan") | {counterpart: "wan"}
    return {(peer, kind) for peer, kind in kinds.items() if peer < node}


def join(
    *,
    listener: Listener,
    identity: Identity,
    here: Sequence[Endpoint],
    there: Sequence[Endpoint],
    wan: Settings,
    lan: Settings | None = None,
    pooling: Pooling | None = None,
    deadline_s: float,
) -> Channel:
    """The pool of the node `identity`, one of `here`; counterparts have the same place in `there`.

    All nodes of both sides do this at the same time, each with a listener of its own for this boundary. Of two nodes
    the one with the lower name dials; who else dials is turned away. On an error all channels are closed again.
    """
    names = [endpoint.node for endpoint in here]
    if len(here) != len(there) or identity.node not in names:
        raise InputError(f"{identity.node} must be one of {names}, and {len(there)} counterparts as many")
    me = names.index(identity.node)
    # One connection is enough where there is no distance, and then nothing is gained by cutting shards.
    lan = lan or replace(wan, connections=1, min_chunk_bytes=wan.chunk_bytes)
    peers = {endpoint: "lan" for endpoint in here if endpoint.node != identity.node} | {there[me]: "wan"}
    settings = {"lan": lan, "wan": wan}
    dialing_us = dialers(identity.node, names, there[me].node)
    listener.expect(dialing_us)
    channels: dict[str, Channel] = {}
    errors: list[Exception] = []

    def dial(endpoint: Endpoint, kind: str) -> None:
        try:
            channels[endpoint.node] = connect(
                endpoint.host,
                endpoint.port,
                identity=identity,
                peer=endpoint.node,
                channel=kind,
                settings=settings[kind],
                deadline_s=deadline_s,
            )
        except Exception as error:
            errors.append(error)

    dialing = [
        threading.Thread(target=dial, args=entry, daemon=True)
        for entry in peers.items()
        if identity.node < entry[0].node
    ]
    for thread in dialing:
        thread.start()
    expected = {peer for peer, _ in dialing_us}
    end_s = time.monotonic() + deadline_s
    try:
        while missing := expected - channels.keys():
            channel = listener.accept(deadline_s=max(0.0, end_s - time.monotonic()))
            channels[channel.peer] = channel
    except DeadlineError:
        others = f"; turned away: {', '.join(listener.turned_away)}" if listener.turned_away else ""
        errors.append(DeadlineError(f"{', '.join(sorted(missing))}: did not come within {deadline_s:g} s{others}"))
    except TransportError as error:
        errors.append(error)
    for thread in dialing:
        thread.join()
    if errors:
        for opened in channels.values():
            opened.close(deadline_s=0)
        raise errors[0]
    lines = {number: channels[name] for number, name in enumerate(names) if number != me}
    return pooled(member=me, lan=lines, wan=channels[there[me].node], job=identity.job, pooling=pooling)
