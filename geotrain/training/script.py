"""What every slot does in a step, in which order, and when the simulator expects it: the plan's actions as played."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

from geotrain.action import Action
from geotrain.plan import Plan
from geotrain.simulation.simulate import rehearse, run


class Cue(NamedTuple):
    """An action and its time in the simulated step."""

    action: Action
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Script:
    """The action lists of one cell; all cells do the same."""

    num_stages: int
    """Slot stages."""
    num_chunks: int
    step_time_s: float
    pooled: frozenset[int]
    """Boundaries at which a cell's pairs carry each transfer together."""
    codes: tuple[tuple[tuple[int, ...], ...], ...]
    """[pipeline of the cell, slot stage]: packed actions. One pipeline stands for all where they do the same."""
    times: tuple[tuple[tuple[tuple[float, float], ...], ...], ...]

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Simulate, and keep what was done."""
        played, result = rehearse(*run(plan))
        timeline = played.timeline()
        actions, orders = timeline.actions, played.orders()
        spans = list(zip(actions.start_s[timeline.by_slot], actions.end_s[timeline.by_slot], strict=True))
        lists: list[list[tuple[int, ...]]] = []
        times: list[list[tuple[tuple[float, float], ...]]] = []
        for number, codes in enumerate(orders.codes):
            if number % timeline.num_stages == 0:
                lists.append([])
                times.append([])
            lists[-1].append(tuple(map(int, codes)))
            times[-1].append(tuple((float(start), float(end)) for start, end in spans[: len(codes)]))
            del spans[: len(codes)]
        return cls(
            num_stages=timeline.num_stages,
            num_chunks=plan.interleave,
            step_time_s=result.step_time_s,
            pooled=played.wiring.pooled if played.wiring.num_pipelines > 1 else frozenset(),
            codes=tuple(map(tuple, lists)),
            times=tuple(map(tuple, times)),
        )

    def cues(self, pipeline: int, stage: int) -> Sequence[Cue]:
        """What the slot of that pipeline of a cell does."""
        place = pipeline % len(self.codes)
        return [
            Cue(Action.unpack(code), *times)
            for code, times in zip(self.codes[place][stage], self.times[place][stage], strict=True)
        ]

    @property
    def num_model_stages(self) -> int:
        """Stages counted through all chunks."""
        return self.num_stages * self.num_chunks

    def pack(self) -> bytes:
        """For the other processes of the data center."""
        return json.dumps(self._content, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """What `pack` packed."""
        content: dict[str, Any] = json.loads(data)
        content["pooled"] = frozenset(content["pooled"])
        content["codes"] = tuple(tuple(map(tuple, slots)) for slots in content["codes"])
        content["times"] = tuple(tuple(tuple(map(tuple, slot)) for slot in slots) for slots in content["times"])
        return cls(**content)

    @cached_property
    def _content(self) -> dict[str, Any]:
        return vars(self) | {"pooled": sorted(self.pooled)}

    @cached_property
    def fingerprint(self) -> str:
        """Equal for all processes that play the same script."""
        order = {key: value for key, value in self._content.items() if key not in ("times", "step_time_s")}
        return hashlib.sha256(json.dumps(order).encode()).hexdigest()[:16]
