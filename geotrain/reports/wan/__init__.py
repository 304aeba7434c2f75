"""What was measured on a WAN: tables, JSON, charts."""

from geotrain.reports.wan.charts import bench_svg, probe_svg
from geotrain.reports.wan.table import bench_json, bench_table, probe_json, probe_table

__all__ = [
    "bench_json",
    "bench_svg",
    "bench_table",
    "probe_json",
    "probe_svg",
    "probe_table",
]
