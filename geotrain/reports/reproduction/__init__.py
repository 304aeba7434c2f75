"""The published claims again: tables, JSON, a page of the docs, HTML page, charts."""

from geotrain.reports.reproduction.chart import reproduction_svg
from geotrain.reports.reproduction.page import reproduction_html
from geotrain.reports.reproduction.table import (
    experiments_table,
    reproduction_json,
    reproduction_markdown,
    reproduction_table,
)

__all__ = [
    "experiments_table",
    "reproduction_html",
    "reproduction_json",
    "reproduction_markdown",
    "reproduction_svg",
    "reproduction_table",
]
