"""Time, memory and bytes of a stage on its device; measured profiles replace formulas."""

from geotrain.cost.stage import StageCost, stage_costs, transfer_bytes

__all__ = ["StageCost", "stage_costs", "transfer_bytes"]
