"""Which pair of nodes a transfer uses: that of its pipeline's slots on both sides.

Slots are numbered stage by stage, pipeline by pipeline, and fill one node after the other, as `seating` has them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from geotrain.plan import Plan


@dataclass(frozen=True, slots=True)
class Row:
    """The slots of one stage in a data center, pipeline by pipeline."""

    first: int
    """Slots before them in the data center."""
    per_node: int

    def node(self, place: int) -> int:
        """The node of the slot at that place in the row."""
        return (self.first + place) // self.per_node


def row_of(plan: Plan, stage: int) -> Row:
    """Where the slots of a stage are, in a plan without replicas."""
    dc = plan.datacenter_of(stage)
    before = sum(other.dc == dc.name for other in plan.stages[:stage])
    return Row(before * plan.num_pipelines, dc.slots_per_node(plan.tensor_parallel))


def most_on_a_pair(ways: Sequence[tuple[Row, Row]], pipelines: int) -> int:
    """Transfers that share a pair of nodes, where they are most, if all pipelines go all of these ways at a time."""
    if any(here.per_node == 1 or there.per_node == 1 for here, there in ways):
        return 1
    pairs = Counter((here.node(place), there.node(place)) for here, there in ways for place in range(pipelines))
    return max(pairs.values())
