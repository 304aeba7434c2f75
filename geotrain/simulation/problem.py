"""A plan as the arrays the kernel plays: durations and hops in ticks, memory in units, channels and links."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geotrain.action import PIPELINE_MASK, STAGE_MASK, Kind
from geotrain.cluster.cluster import limit
from geotrain.cost import StageCost, stage_costs, swapped_bytes, transfer_bytes
from geotrain.errors import DoesNotFitError, InputError
from geotrain.network import (
    Path,
    Ring,
    Swap,
    most_on_a_pair,
    path_between,
    ring_all_reduce_s,
    ring_of,
    row_of,
    swap_between,
)
from geotrain.plan import Plan
from geotrain.schedule import Shape
from geotrain.timeline import Floats, Ints
from geotrain.units import format_bytes, plural

FORWARD, BACKWARD = 0, 1
MOST_TICKS = 4e18
"""Of a step: less than half of what 64 bits count, so that a sum of two times still fits."""
_MOST_DIGITS = 15
_LONGEST_S = 1e18
"""A step that may take longer, more than the age of the universe, has a mistake in its figures."""
MOST_SPANS = 50_000_000
"""Actions and transfers of a step that is simulated: some gigabytes of memory."""
_UNIT = 1 << 20
"""Memory units of one microbatch's activations, fine enough for the parts that a split backward releases."""
_PLENTY = 1 << 60
"""Memory units that are never reached."""


@dataclass(frozen=True, kw_only=True)
class Hop:
    """The way of a stage's result to the stage that needs it, in one direction."""

    direction: int
    stage: int
    """Stage of the model that sends."""
    source: int
    """Slot stages."""
    target: int
    own: Path
    """With the pipeline's own connections."""
    pooled: Path
    """With those of all pipelines of the cell."""
    capacity: float
    """Bytes per second of the link it is on; infinite inside a data center or where no limit is given."""

    @property
    def boundary(self) -> int:
        """The boundary of slot stages that it crosses; the way back to the first slot (interleaved) is the last one."""
        if abs(self.source - self.target) == 1:
            return min(self.source, self.target)
        return max(self.source, self.target)


@dataclass(frozen=True)
class Problem:
    """Everything about a plan that does not depend on its schedule."""

    plan: Plan
    stretch: float = 1.0
    """Ticks are chosen so that a step that takes this many times as long as planned fits too."""

    @cached_property
    def costs(self) -> list[StageCost]:
        """Per stage of the model."""
        return stage_costs(self.plan)

    @cached_property
    def transfer_bytes(self) -> float:
        """Per microbatch, boundary and direction."""
        return transfer_bytes(self.plan.job)

    @cached_property
    def hops(self) -> list[Hop]:
        """Every way between stages of the model, forward ones first."""
        slots, stages = len(self.plan.stages), len(self.costs)
        ways = [(FORWARD, s, s + 1) for s in range(stages - 1)] + [(BACKWARD, s, s - 1) for s in range(1, stages)]
        return [self._hop(direction, stage, stage % slots, to % slots) for direction, stage, to in ways]

    def _hop(self, direction: int, stage: int, source: int, target: int) -> Hop:
        own, pooled, capacity = self._ways(source, target)
        return Hop(
            direction=direction, stage=stage, source=source, target=target, own=own, pooled=pooled, capacity=capacity
        )

    def _ways(self, source: int, target: int) -> tuple[Path, Path, float]:
        """With the pipeline's own connections, with those of all the cell, and the link's capacity."""
        if (source, target) not in self._known_ways:
            plan = self.plan
            own, pooled = (
                path_between(plan, source, target, pooled=pooled, size_bytes=self.transfer_bytes)
                for pooled in (False, True)
            )
            capacity = self._capacity(plan.stages[source].dc, plan.stages[target].dc) if own.crosses_wan else math.inf
            self._known_ways[source, target] = own, pooled, capacity
        return self._known_ways[source, target]

    @cached_property
    def _known_ways(self) -> dict[tuple[int, int], tuple[Path, Path, float]]:
        return {}

    def _capacity(self, here: str, there: str) -> float:
        """Of a link; where a pipeline crosses it several times over the same nodes, these crossings share the pair."""
        plan, link = self.plan, self.plan.cluster.link(here, there)
        rows = [
            (row_of(plan, source), row_of(plan, target))
            for source, target in self._crossings
            if (plan.stages[source].dc, plan.stages[target].dc) == (here, there)
        ]
        alone = max(most_on_a_pair([way], plan.num_pipelines) for way in rows)
        if most_on_a_pair(rows, plan.num_pipelines) == alone:
            return limit(link.capacity)
        return min(limit(link.capacity), limit(link.pair_cap) / alone * plan.num_pipelines)

    @cached_property
    def _crossings(self) -> list[tuple[int, int]]:
        """Slot stages between which results go over the WAN."""
        slots = len(self.plan.stages)
        onward = {(s % slots, (s + 1) % slots) for s in range(slots * self.plan.interleave - 1)}
        ways = onward | {(there, here) for here, there in onward}
        return sorted((here, there) for here, there in ways if self.plan.crosses_wan(here, there))

    @cached_property
    def wan_boundaries(self) -> list[int]:
        """Boundaries of slot stages whose transfers cross the WAN."""
        return sorted({hop.boundary for hop in self.hops if hop.own.crosses_wan})

    @cached_property
    def wan_bytes(self) -> dict[tuple[str, str], float]:
        """Per step, from one data center to another, all pipelines together."""
        plan = self.plan
        sent: dict[tuple[str, str], float] = {}
        if plan.replicas:
            gradients = sum(cost.gradient_bytes for cost in self.costs)
            names = [dc.name for dc, _ in self.ring.groups]
            return {ends: self.ring.sent_bytes(gradients) for ends in zip(names, [*names[1:], names[0]], strict=True)}
        each = plan.num_microbatches * plan.num_pipelines * self.transfer_bytes
        for hop in self.hops:
            if hop.own.crosses_wan:
                ends = plan.stages[hop.source].dc, plan.stages[hop.target].dc
                sent[ends] = sent.get(ends, 0.0) + each
        if self.swap is not None:
            for ends in self.swap.ways():
                sent[ends] = sent.get(ends, 0.0) + self.swap.size_bytes
        return sent

    @cached_property
    def ring(self) -> Ring:
        """The data centers of a plan with replicas."""
        return ring_of(self.plan)

    @cached_property
    def available_bytes(self) -> list[float]:
        """Per slot stage: memory of one GPU that is left for activations; DoesNotFitError if not even one fits."""
        plan, slots = self.plan, len(self.plan.stages)
        left = []
        for slot in range(slots):
            memories = [cost.memory for cost in self.costs[slot::slots]]
            static = sum(memory.static_bytes for memory in memories)
            workspace = max(memory.workspace_bytes for memory in memories)
            least = max(memory.activation_bytes for memory in memories)
            limit_bytes = plan.training_bytes(slot)
            if static + workspace + least > limit_bytes:
                raise DoesNotFitError(
                    f"stage {slot} needs {format_bytes(static + workspace + least)} per GPU, "
                    f"{plan.memory_there(slot)}: "
                    f"weights, gradients and optimizer {format_bytes(static)}, "
                    f"one microbatch in flight {format_bytes(least)}, workspace {format_bytes(workspace)}"
                )
            left.append(limit_bytes - static - workspace)
        return left

    @cached_property
    def shape(self) -> Shape:
        """What schedules are made for; InputError if the step has more actions than can be simulated."""
        plan, slots = self.plan, len(self.plan.stages)
        self.refuse_too_many(1)
        most = plan.num_microbatches * plan.interleave
        cap = most if plan.max_in_flight == "auto" else plan.max_in_flight * plan.interleave
        room = []
        for slot, available in enumerate(self.available_bytes):
            each = max(cost.memory.activation_bytes for cost in self.costs[slot::slots])
            fits = most if each == 0 else min(most, int(available // each))
            room.append(min(cap, fits))
        return Shape(
            num_stages=slots,
            num_microbatches=plan.num_microbatches,
            num_chunks=plan.interleave,
            recompute=plan.job.recompute == "full",
            room=tuple(room),
        )

    def refuse_too_many(self, num_pipelines: int) -> None:
        """InputError if a step with that many pipelines has more actions than can be simulated."""
        plan, stages = self.plan, len(self.plan.stages) * self.plan.interleave
        actions = (3 if plan.job.recompute == "full" else 2) * stages * plan.num_microbatches * num_pipelines
        if actions > MOST_SPANS or stages > STAGE_MASK or num_pipelines > PIPELINE_MASK:
            raise InputError(
                f"{plural(plan.num_microbatches, 'microbatch')}, {plural(stages, 'stage')} and "
                f"{plural(num_pipelines, 'pipeline')} make {actions} actions, a simulated step has at most "
                f"{MOST_SPANS} on {STAGE_MASK} stages of {PIPELINE_MASK} pipelines: use fewer, larger microbatches"
            )

    @cached_property
    def longest_s(self) -> float:
        """A step with everything one after the other, which none exceeds; InputError if that is beyond all reason."""
        work = sum(c.forward_s + c.recompute_s + c.backward_s for c in self.costs)
        slowest = sum(max(self._slowest_s(hop), hop.pooled.occupancy_s(self.transfer_bytes)) for hop in self.hops)
        latency = sum(hop.own.latency_s + hop.pooled.latency_s for hop in self.hops)
        serial = self.plan.num_microbatches * self.plan.pipelines_per_cell * (work + slowest + latency)
        longest = serial + max(self._reduce_s) + max(self._update_s) + (self.swap.total_s if self.swap else 0.0)
        if not longest <= _LONGEST_S:
            raise InputError(
                f"a step may take {longest:.3g} s and must take at most {_LONGEST_S:.0e} s to be simulated: look for a "
                "rate that is too low, or a time or size that is too high"
            )
        return longest

    @cached_property
    def digits(self) -> int:
        """Decimal digits of a second in a tick: as many as fit, so that times people write stay exact."""
        longest = self.longest_s * self.stretch
        return _MOST_DIGITS if longest == 0 else min(_MOST_DIGITS, math.floor(math.log10(MOST_TICKS / longest)))

    def _slowest_s(self, hop: Hop) -> float:
        """A transfer when everybody shares the link with it."""
        flows = self.plan.num_pipelines * len(self.hops)
        return max(hop.own.occupancy_s(self.transfer_bytes), self.transfer_bytes * flows / hop.capacity)

    def ticks(self, seconds: float | Floats) -> Ints:
        """Seconds in ticks; InputError if those are more than can be counted."""
        ticks = np.rint(np.asarray(seconds, dtype=np.float64) * 10.0**self.digits)
        if not (np.abs(ticks) <= 1.01 * MOST_TICKS).all():
            raise InputError(
                f"a time of {np.max(seconds):.3g} s is too long to be simulated in a step that takes at most "
                f"{self.longest_s:.3g} s"
            )
        return ticks.astype(np.int64)

    def seconds(self, ticks: Ints) -> Floats:
        """Ticks in seconds."""
        return np.asarray(ticks / 10.0**self.digits, dtype=np.float64)

    @cached_property
    def durations(self) -> Ints:
        """[kind, stage] ticks."""
        rows = {
            Kind.F: [c.forward_s for c in self.costs],
            Kind.R: [c.recompute_s for c in self.costs],
            Kind.B: [c.backward_s for c in self.costs],
            Kind.W: [c.weight_grad_s for c in self.costs],
        }
        durations = self.ticks(np.array([rows.get(kind, [0.0] * len(self.costs)) for kind in Kind]))
        durations[Kind.I] = durations[Kind.B] - durations[Kind.W]
        return durations

    def held(self, *, split: bool) -> Ints:
        """[kind, stage] memory units that an action adds; a microbatch's activations are one _UNIT.

        A split backward may leave several microbatches between I and W, so what recompute brings back is counted
        with them; otherwise at most one is worked on at a time and its workspace is set aside.
        """
        held = np.zeros((len(Kind), len(self.costs)), dtype=np.int64)
        for stage, cost in enumerate(self.costs):
            postponed = self._units(stage, cost.memory.weight_grad_bytes)
            back = self._units(stage, cost.memory.recomputed_bytes) if split else 0
            straight = stage == len(self.costs) - 1  # the last stage goes from F to I with all it has
            held[Kind.F, stage] = _UNIT + (back if straight else 0)
            held[Kind.R, stage] = back
            held[Kind.B, stage] = -_UNIT - back
            held[Kind.I, stage] = postponed - _UNIT - back
            held[Kind.W, stage] = -postponed
        return held

    def _units(self, stage: int, size_bytes: float) -> int:
        each = self.costs[stage].memory.activation_bytes
        units = size_bytes / each * _UNIT if each else 0.0
        if units * self.plan.num_microbatches * self.plan.interleave > _PLENTY:
            self.refuse_too_many(1)
            raise InputError(
                f"stage {stage} holds {format_bytes(each)} of activations for a microbatch and "
                f"{format_bytes(size_bytes)} while it works on one, too far apart to be simulated: check the profile"
            )
        return round(units)

    def limits(self, *, split: bool, hold: tuple[float, ...] = ()) -> Ints:
        """[slot] memory units that fit; what recompute brings back is among them where backward is split.

        `hold` caps the rest, in microbatches' worth of activations.
        """
        slots, limits = len(self.plan.stages), []
        for slot, available in enumerate(self.available_bytes):
            mine = [(stage, self.costs[stage].memory) for stage in range(slot, len(self.costs), slots)]
            each = max(memory.activation_bytes for _, memory in mine)
            # In the units that an action adds, rounded like those: what just fits must.
            spare = max(self._units(stage, memory.recomputed_bytes) for stage, memory in mine) if split else 0
            kept = min(available, hold[slot] * each) if hold else available
            limits.append(int(min(kept / each * _UNIT * (1 + 1e-9), _PLENTY)) + spare if each else _PLENTY)
        return np.array(limits, dtype=np.int64)

    @cached_property
    def swap(self) -> Swap | None:
        """Of the two ends of a pipeline whose embedding is also its head; None where there is nothing to swap."""
        plan, last = self.plan, len(self.plan.stages) - 1
        gradients = min(self._gradient_bytes(slot) for slot in (0, last))
        size_bytes = swapped_bytes(plan.job, gradients)
        if last == 0 or size_bytes == 0:
            return None
        groups = plan.groups if plan.replicas else [(plan.datacenter_of(0), plan.num_pipelines)]
        swaps = [
            swap_between(
                plan.cluster,
                here,
                here if plan.replicas else plan.datacenter_of(last),
                size_bytes=size_bytes,
                width=plan.tensor_parallel,
                copies=copies,
                connections=plan.wan.connections,
            )
            for here, copies in groups
        ]
        return max(swaps, key=lambda swap: swap.total_s)

    @cached_property
    def finish(self) -> Ints:
        """Per slot stage: ticks from its last action to the end of the step, if it is the one that all wait for."""
        finish = self._reduce + self.update
        if self.swap is not None:  # both ends begin their optimizer once they have swapped
            ends = [0, -1]
            finish[ends] = self._reduce[ends] + self.ticks(self.swap.total_s) + self.update[ends].max()
        return finish

    @cached_property
    def update(self) -> Ints:
        """Per slot stage: ticks of the optimizer."""
        return self.ticks(np.array(self._update_s))

    def update_start(self, work_end: Ints) -> Ints:
        """Per slot stage: when its optimizer begins, if its last action ends then: after all-reduce and swap."""
        start = work_end + self._reduce
        if self.swap is not None:
            start[[0, -1]] = max(start[0], start[-1]) + self.ticks(self.swap.total_s)
        return start

    @cached_property
    def _reduce(self) -> Ints:
        return self.ticks(np.array(self._reduce_s))

    @cached_property
    def _update_s(self) -> list[float]:
        slots = len(self.plan.stages)
        return [sum(cost.optimizer_s for cost in self.costs[slot::slots]) for slot in range(slots)]

    @cached_property
    def _reduce_s(self) -> list[float]:
        """Per slot stage: the all-reduce that follows its last action."""
        slots = len(self.plan.stages)
        hidden_s = [sum(cost.weight_grad_s for cost in self.costs[slot::slots]) for slot in range(slots)]
        return [self._all_reduce_s(slot, self._gradient_bytes(slot), hidden_s[slot]) for slot in range(slots)]

    def _gradient_bytes(self, slot: int) -> float:
        return sum(cost.gradient_bytes for cost in self.costs[slot :: len(self.plan.stages)])

    def _all_reduce_s(self, slot: int, size_bytes: float, hidden_s: float) -> float:
        plan = self.plan
        if plan.replicas:
            return self.ring.all_reduce_s(size_bytes, max(1, plan.stages[slot].layers), hidden_s)
        return ring_all_reduce_s(plan.num_pipelines, size_bytes, plan.datacenter_of(slot))

    def activation_units(self, units: Ints) -> Floats:
        """Memory units as microbatches' worth of activations."""
        return np.asarray(units / _UNIT, dtype=np.float64)
