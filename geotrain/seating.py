"""Who does what: every process of a run by data center and rank, from the plan alone. Pure.

Each data center is a world of its own for torch.distributed, with ranks from 0; the data centers meet over the WAN.
Slots are numbered stage by stage, pipeline by pipeline, and fill one node after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.units import plural

_NAME_BYTES = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """One process, one GPU."""

    dc: str
    rank: int
    """In the world of its data center."""
    node: int
    local_rank: int
    stage: int
    """Slot stage."""
    pipeline: int
    """Counted through all cells, and through all data centers with replicas."""
    part: int
    """Of the slot's tensor-parallel GPUs."""

    @property
    def name(self) -> str:
        """The node name of the process in certificates and errors."""
        return f"{self.dc}-{self.rank}"

    @property
    def slot(self) -> tuple[int, int]:
        """Pipeline and stage."""
        return self.pipeline, self.stage


@dataclass(frozen=True)
class Seating:
    """All seats of a plan."""

    plan: Plan

    def __post_init__(self) -> None:
        # On the wire and in certificates names have 40 bytes, and a process is called by its data center and a number.
        for dc in self.dcs:
            if len(dc.encode()) > _NAME_BYTES:
                raise InputError(f"data center {dc!r}: to train there, its name must have at most {_NAME_BYTES} bytes")

    @cached_property
    def dcs(self) -> list[str]:
        """Data centers that take part, the leading one first."""
        homes = [stage.dc for stage in self.plan.stages]
        return list(dict.fromkeys([*homes, *(replica.dc for replica in self.plan.replicas)]))

    @cached_property
    def seats(self) -> list[Seat]:
        """Data center after data center, by rank."""
        return [seat for dc in self.dcs for seat in self._seats_of(dc)]

    def _seats_of(self, dc: str) -> list[Seat]:
        plan, width = self.plan, self.plan.tensor_parallel
        per_node = plan.cluster.datacenter(dc).slots_per_node(width)
        slots = [(stage, pipeline) for stage in self._stages_in(dc) for pipeline in self.pipelines_in(dc)]
        return [
            Seat(
                dc=dc,
                rank=number * width + part,
                node=number // per_node,
                local_rank=number % per_node * width + part,
                stage=stage,
                pipeline=pipeline,
                part=part,
            )
            for number, (stage, pipeline) in enumerate(slots)
            for part in range(width)
        ]

    def _stages_in(self, dc: str) -> list[int]:
        stages = range(len(self.plan.stages))
        return list(stages) if self.plan.replicas else [s for s in stages if self.plan.stages[s].dc == dc]

    def pipelines_in(self, dc: str) -> list[int]:
        """The pipelines that have stages there."""
        if not self.plan.replicas:
            return list(range(self.plan.num_pipelines))
        first = 0
        for here, count in self.plan.groups:
            if here.name == dc:
                return list(range(first, first + count))
            first += count
        raise InputError(f"{dc!r} has no part in this plan, only {', '.join(self.dcs)} have")

    def world(self, dc: str) -> list[Seat]:
        """The seats of one data center, by rank."""
        if dc not in self.dcs:
            raise InputError(f"{dc!r} has no part in this plan, only {', '.join(self.dcs)} have")
        return [seat for seat in self.seats if seat.dc == dc]

    def nodes(self, dc: str) -> list[list[Seat]]:
        """The seats of one data center, node by node."""
        world = self.world(dc)
        return [[seat for seat in world if seat.node == node] for node in range(world[-1].node + 1)]

    def seat(self, dc: str, rank: int, world_size: int) -> Seat:
        """The seat of a rank; InputError if the number of processes is not the plan's."""
        world = self.world(dc)
        if world_size != len(world):
            raise InputError(
                f"{dc!r} was started with {plural(world_size, 'process')}, and the plan needs {len(world)} there: "
                f"{plural(len(self._stages_in(dc)), 'stage')} x {plural(len(self.pipelines_in(dc)), 'pipeline')} x "
                f"{plural(self.plan.tensor_parallel, 'GPU')}"
            )
        return world[rank]

    def at(self, pipeline: int, stage: int) -> list[Seat]:
        """The seats of a slot, by part."""
        return self._by_slot[pipeline, stage]

    @cached_property
    def _by_slot(self) -> dict[tuple[int, int], list[Seat]]:
        found: dict[tuple[int, int], list[Seat]] = {}
        for seat in self.seats:
            found.setdefault(seat.slot, []).append(seat)
        return found

    def copies(self, stage: int) -> list[list[Seat]]:
        """Who holds the same weights of a stage, part by part: the data-parallel groups."""
        pipelines = range(self.plan.num_pipelines)
        return [[self.at(p, stage)[part] for p in pipelines] for part in range(self.plan.tensor_parallel)]

    def cell(self, pipeline: int) -> Sequence[int]:
        """The pipelines that pool their WAN bandwidth with this one, itself among them."""
        width = self.plan.pipelines_per_cell
        first = pipeline // width * width
        return range(first, first + width)
