"""Every process of a run as a command: an agent (torchrun) per node, or each worker by itself. Pure.

The rendezvous is c10d's: when workers die on one node, the agents of all nodes in that data center start theirs again.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from geotrain.seating import Seat
from geotrain.training.launch.ground import Ground
from geotrain.training.launch.launch import Launch

SHUTDOWN_S = 10
"""How long an agent lets its workers take their leave."""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    # With the agent's store shared, what the workers of one attempt left there misleads those of the next.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(SHUTDOWN_S),
}
_JOIN_S, _STORE_S = 1800, 600
_TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


@dataclass(frozen=True, kw_only=True)
class Process:
    """A command on a node, and whose places its workers take."""

    dc: str
    node: int
    host: str
    seats: Sequence[Seat]
    agent: Sequence[str]
    """Empty: the worker is started as it is."""
    worker: Sequence[str]
    environment: Mapping[str, str]
    """Besides the machine's own."""

    @property
    def name(self) -> str:
        """Of its log."""
        return f"{self.dc}-agent-{self.node}" if self.agent else self.seats[0].name

    @property
    def command(self) -> list[str]:
        """The whole."""
        return [*self.agent, *self.worker]


def processes(launch: Launch, ground: Ground) -> Iterator[Process]:
    """Data center after data center, node after node."""
    for dc in launch.seating.dcs:
        nodes, environment = ground.nodes(dc), ENVIRONMENT | ground.environment(dc)
        for number, seats in enumerate(nodes):
            host = ground.address(dc, number)
            worker = launch.worker(dc, host=host, control=ground.control)
            if launch.max_restarts:
                options = agent_options(
                    nodes=len(nodes),
                    workers=str(len(seats)),
                    rendezvous=ground.rendezvous(dc),
                    is_host=str(number == 0).lower(),
                    name=node_name(number, host),
                    max_restarts=launch.max_restarts,
                )
                agent = [*_TORCHRUN, *options]
                yield Process(
                    dc=dc, node=number, host=host, seats=seats, agent=agent, worker=worker, environment=environment
                )
                continue
            world = sum(map(len, nodes))
            for local_rank, seat in enumerate(seats):
                told = environment | _place(seat, world, local_rank, len(seats), ground.rendezvous(dc))
                yield Process(dc=dc, node=number, host=host, seats=[seat], agent=[], worker=worker, environment=told)


def agent_options(
    *, nodes: int, workers: str, rendezvous: str, is_host: str, name: str, max_restarts: int
) -> list[str]:
    """Of torchrun on one of the nodes of a data center; the worker's command follows."""
    return [
        *("--nnodes", str(nodes)),
        *("--nproc-per-node", workers),
        *("--rdzv-backend", "c10d"),
        *("--rdzv-endpoint", rendezvous),
        *("--rdzv-id", "geotrain"),
        *("--rdzv-conf", f"is_host={is_host},join_timeout={_JOIN_S},read_timeout={_STORE_S}"),
        *("--local-addr", name),
        *("--max-restarts", str(max_restarts)),
        "--no-python",
    ]


def node_name(number: int, address: str) -> str:
    """What an agent calls its node: c10d ranks nodes by it. Only the first is ever dialed, so that is an address."""
    return address if number == 0 else f"~{number:04d}"


def _place(seat: Seat, world: int, local_rank: int, local_world: int, rendezvous: str) -> dict[str, str]:
    """What torchrun would tell a worker."""
    address, _, port = rendezvous.rpartition(":")
    return {
        "RANK": str(seat.rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_world),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
