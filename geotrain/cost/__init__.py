"""Time, memory and bytes of a stage on its device; measured profiles replace formulas."""

from geotrain.cost.stage import StageCost, stage_cost, stage_costs, swapped_bytes, transfer_bytes
from geotrain.cost.work import Share

__all__ = ["Share", "StageCost", "stage_cost", "stage_costs", "swapped_bytes", "transfer_bytes"]
