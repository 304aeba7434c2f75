"""Whether a job can fit at all: one pipeline over all GPUs, one microbatch in flight.

What does not fit then fits in no plan. Says how near it comes, on which stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from geotrain.cluster import Datacenter
from geotrain.cost.memory import Memory, stage_memory
from geotrain.workload import Job

_PRECISE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Tightest:
    """The stage with the fullest GPUs, where layers are spread so that those are as empty as can be."""

    dc: Datacenter
    layers: int
    is_first: bool
    is_last: bool
    tensor_parallel: int
    num_stages: int
    memory: Memory

    @property
    def needs_bytes(self) -> float:
        """Of one GPU."""
        return total_bytes(self.memory)

    @property
    def fill(self) -> float:
        """Above 1, it does not fit."""
        return self.needs_bytes / self.dc.usable_bytes


def total_bytes(memory: Memory) -> float:
    """With one microbatch in flight."""
    return memory.static_bytes + memory.activation_bytes + memory.workspace_bytes


def tightest(dcs: Sequence[Datacenter], job: Job) -> Tightest:
    """For the tensor parallelism that comes nearest to fitting; the smallest of those that fit."""
    most = max(dc.gpus_per_node for dc in dcs)
    degrees = [degree for degree in range(1, most + 1) if job.model.heads % degree == 0]
    found = [_Spread(dcs, job, degree).tightest() for degree in degrees]
    return min(found, key=lambda stage: max(1.0, stage.fill))


class _Spread:
    """The layers of one pipeline over the slots of `degree` GPUs each."""

    def __init__(self, dcs: Sequence[Datacenter], job: Job, degree: int) -> None:
        self.job, self.degree = job, degree
        profile = job.profile.stage
        left = len(profile) if isinstance(profile, list) else job.model.layers
        self.slots: list[tuple[Datacenter, int]] = []
        for dc in sorted(dcs, key=lambda dc: -dc.usable_bytes):
            number = min(left, dc.num_slots(degree))
            if number:
                self.slots.append((dc, number))
                left -= number
        self.num_stages = sum(number for _, number in self.slots)

    def tightest(self) -> Tightest:
        """The smallest stretch of all memories at which the layers fit shows which stage is in the way."""
        low, high = 0.0, 1.0
        while self.room(high) < self.job.model.layers:
            low, high = high, 2 * high
        while high - low > _PRECISE * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.room(middle) >= self.job.model.layers else (middle, high)
        kinds = [self._stage(self.slots[0][0], end, high) for end in self._ends()]
        if self.num_stages > 2:
            kinds += [self._stage(dc, (False, False), high) for dc, _ in self.slots]
        return max(kinds, key=lambda stage: stage.fill if stage.layers else 0.0)

    def _ends(self) -> list[tuple[bool, bool]]:
        return [(True, True)] if self.num_stages == 1 else [(True, False), (False, True)]

    def room(self, stretch: float) -> int:
        """Layers that fit if every GPU had `stretch` times its memory; the ends go where there is most room."""
        largest = self.slots[0][0]
        ends = [self.most_layers(largest, end, stretch) for end in self._ends()]
        if min(ends) < 1:
            return 0
        middles = [(number, self.most_layers(dc, (False, False), stretch)) for dc, number in self.slots]
        return sum(ends) + sum(number * layers for number, layers in middles) - len(ends) * middles[0][1]

    def most_layers(self, dc: Datacenter, end: tuple[bool, bool], stretch: float) -> int:
        """Of one stage there."""
        limit = dc.usable_bytes * stretch
        low, high = 0, self.job.model.layers + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if total_bytes(self._memory(middle, end)) <= limit else (low, middle)
        return low

    def _stage(self, dc: Datacenter, end: tuple[bool, bool], stretch: float) -> Tightest:
        layers = self.most_layers(dc, end, stretch)
        return Tightest(
            dc=dc,
            layers=layers,
            is_first=end[0],
            is_last=end[1],
            tensor_parallel=self.degree,
            num_stages=self.num_stages,
            memory=self._memory(layers, end),
        )

    def _memory(self, layers: int, end: tuple[bool, bool]) -> Memory:
        """By the formulas, or as measured."""
        is_first, is_last = end
        formula = stage_memory(
            self.job, layers, is_first=is_first, is_last=is_last, tensor_parallel=self.degree, sequence_parallel=True
        )
        profile = self.job.profile.stage
        measured = profile if not isinstance(profile, list) else profile[0 if is_first else -1 if is_last else 1]
        names = ("static_bytes", "activation_bytes", "workspace_bytes")
        known = {name: getattr(measured, name) for name in names}
        return Memory(**vars(formula) | {name: value for name, value in known.items() if value is not None})
