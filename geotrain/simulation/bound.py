"""A lower bound of the step: what no schedule can beat on the plan's slots, links and memory.

Three kinds of floor, each the sum of what comes first, what one resource must do, and what must still follow:

- a slot computes all its microbatches, after the first has come down the pipeline;
- a WAN boundary carries all its bytes, between the first result before it and the last microbatch's way home;
- one microbatch goes through the whole pipeline and back.

Any schedule may pool a cell's pairs, split backward and recompute while it waits, so the floors assume all of that.
"""

from dataclasses import dataclass
from itertools import accumulate

from geotrain.simulation.problem import BACKWARD, FORWARD, Problem
from geotrain.simulation.result import Bound


@dataclass(frozen=True)
class _Way:
    """Shortest times along the pipeline for a single microbatch."""

    problem: Problem
    finish_s: tuple[float, ...]
    """Per slot stage: all-reduce and optimizer after its last action."""

    def hop_s(self, direction: int, stage: int) -> float:
        """Fastest transfer of the stage's result."""
        for hop in self.problem.hops:
            if hop.direction == direction and hop.stage == stage:
                rate = min(max(hop.own.rate, hop.pooled.rate), self.problem.link_capacity(hop))
                return self.problem.transfer_bytes / rate + min(hop.own.latency_s, hop.pooled.latency_s)
        raise AssertionError(f"no hop {direction} from stage {stage}")

    def heads(self) -> list[float]:
        """Per stage: earliest start of its first forward."""
        costs = self.problem.costs
        steps = (costs[s].forward_s + self.hop_s(FORWARD, s) for s in range(len(costs) - 1))
        return list(accumulate(steps, initial=0.0))

    def tails(self) -> list[float]:
        """Per stage: least time from the end of an input gradient there to the end of the step."""
        costs, slots = self.problem.costs, len(self.finish_s)
        tails = [costs[0].weight_grad_s + self.finish_s[0]]
        for stage in range(1, len(costs)):
            back = self.hop_s(BACKWARD, stage) + costs[stage - 1].input_grad_s + tails[-1]
            tails.append(max(back, costs[stage].weight_grad_s + self.finish_s[stage % slots]))
        return tails


def lower_bound(problem: Problem, finish_s: tuple[float, ...]) -> Bound:
    """The largest floor and its name."""
    plan, costs = problem.plan, problem.costs
    way = _Way(problem, finish_s)
    heads, tails = way.heads(), way.tails()
    floors: list[tuple[float, str]] = []

    last = len(costs) - 1
    home_s = costs[last].input_grad_s + tails[last]
    floors.append((heads[last] + costs[last].forward_s + home_s, "one microbatch's way through the pipeline and back"))

    slots, microbatches = len(plan.stages), plan.num_microbatches
    recompute = plan.job.recompute == "full"
    for slot in range(slots):
        mine = range(slot, len(costs), slots)
        urgent = sum(
            costs[s].forward_s + costs[s].input_grad_s + (costs[s].recompute_s if recompute and s != last else 0.0)
            for s in mine
        )
        weights = sum(costs[s].weight_grad_s for s in mine)
        head = heads[slot]
        floors.append((head + microbatches * urgent + tails[slot], f"compute of stage {slot}"))
        floors.append((head + microbatches * (urgent + weights) + finish_s[slot], f"compute of stage {slot}"))

    for hop in problem.hops:
        if not hop.own.crosses_wan:
            continue
        crossing = sum(other.source == hop.source and other.target == hop.target for other in problem.hops)
        rate = min(hop.own.rate, problem.link_capacity(hop) / plan.num_pipelines)
        carry = crossing * microbatches * problem.transfer_bytes / rate
        # All its transfers, and the last of them has still to arrive.
        fastest = problem.transfer_bytes / min(max(hop.own.rate, hop.pooled.rate), problem.link_capacity(hop))
        arrive = way.hop_s(hop.direction, hop.stage) - fastest
        first, rest = _around(problem, way, heads, tails, hop.direction, hop.stage, home_s)
        if crossing > 1:
            first, rest, arrive = 0.0, 0.0, 0.0
        source, target = plan.stages[hop.source].dc, plan.stages[hop.target].dc
        floors.append((first + carry + arrive + rest, f"bytes over the WAN from {source} to {target}"))
    total, binding = max(floors, key=lambda floor: floor[0])
    return Bound(total_s=total, binding=binding)


def _around(
    problem: Problem, way: _Way, heads: list[float], tails: list[float], direction: int, stage: int, home_s: float
) -> tuple[float, float]:
    """Least time before the first transfer of that hop, and after the last has arrived."""
    costs = problem.costs
    last = len(costs) - 1
    if direction == FORWARD:
        onward = heads[last] - heads[stage + 1] + costs[last].forward_s + home_s
        return heads[stage] + costs[stage].forward_s, onward
    down = heads[last] + costs[last].forward_s
    back = sum(costs[s].input_grad_s for s in range(stage, len(costs)))
    back += sum(way.hop_s(BACKWARD, s) for s in range(stage + 1, len(costs)))
    return down + back, costs[stage - 1].input_grad_s + tails[stage - 1]
