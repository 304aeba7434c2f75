"""Every process of a run as a command: an agent (torchrun) per node, or each worker by itself. Pure.

The rendezvous is c10d's: when workers die on one node, the agents of all nodes in that data center start theirs again.
Agents unpickle what they find there, and its TCP store takes anything from anywhere. So agents and workers meet in
files that only their user may open, in a directory that the nodes of a data center share: no store listens.
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
_JOIN_S, _SIGN_OF_LIFE_S = 1800, 30
"""How long agents wait for each other, and how often each leaves word that it lives: the file grows by all of these."""
STORE = "GEOTRAIN_STORE"
"""The variable that tells workers the directory in which they meet."""
_AGENTS = "agents"
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
        nodes, store = ground.nodes(dc), str(launch.store(dc))
        environment = ENVIRONMENT | ground.environment(dc) | {STORE: store}
        for number, seats in enumerate(nodes):
            host = ground.address(dc, number)
            worker = launch.worker(dc, host=host, control=ground.control)
            if launch.max_restarts:
                options = agent_options(
                    nodes=len(nodes),
                    workers=str(len(seats)),
                    store=store,
                    run_id=launch.run_id,
                    name=node_name(number),
                    max_restarts=launch.max_restarts,
                )
                agent = [*_TORCHRUN, *options]
                yield Process(
                    dc=dc, node=number, host=host, seats=seats, agent=agent, worker=worker, environment=environment
                )
                continue
            world = sum(map(len, nodes))
            for local_rank, seat in enumerate(seats):
                told = environment | _place(seat, world, local_rank, len(seats))
                yield Process(dc=dc, node=number, host=host, seats=[seat], agent=[], worker=worker, environment=told)


def agent_options(*, nodes: int, workers: str, store: str, run_id: str, name: str, max_restarts: int) -> list[str]:
    """Options of torchrun on one of the nodes of a data center, which share the directory `store`.

    The worker's command follows.
    """
    return [
        *("--nnodes", str(nodes)),
        *("--nproc-per-node", workers),
        *("--rdzv-backend", "c10d"),
        *("--rdzv-endpoint", f"{store}/{_AGENTS}"),
        *("--rdzv-conf", f"store_type=file,join_timeout={_JOIN_S},keep_alive_interval={_SIGN_OF_LIFE_S}"),
        *("--rdzv-id", run_id),
        *("--local-addr", name),
        *("--max-restarts", str(max_restarts)),
        "--no-python",
    ]


def node_name(number: int) -> str:
    """Return what an agent calls its node: c10d ranks nodes by it, as text. It is no address, for none is dialed."""
    return f"{number:04d}"


def _place(seat: Seat, world: int, local_rank: int, local_world: int) -> dict[str, str]:
    """What torchrun would tell a worker."""
    return {
        "RANK": str(seat.rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_world),
    }
