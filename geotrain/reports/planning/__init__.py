"""What the planner found: the plan, why this one, time against cost, where it is; what-ifs."""

from geotrain.reports.planning.answer import answer_table, plan_heading
from geotrain.reports.planning.explanation import explanation_table, fallback_table, planning_html
from geotrain.reports.planning.frontier import frontier_svg, frontier_table
from geotrain.reports.planning.lines import whatif_svg
from geotrain.reports.planning.machine import answer_json
from geotrain.reports.planning.placement import placement_svg
from geotrain.reports.planning.whatif import whatif_csv, whatif_json, whatif_table

__all__ = [
    "answer_json",
    "answer_table",
    "explanation_table",
    "fallback_table",
    "frontier_svg",
    "frontier_table",
    "placement_svg",
    "plan_heading",
    "planning_html",
    "whatif_csv",
    "whatif_json",
    "whatif_svg",
    "whatif_table",
]
