"""Rows and tables for tests of validation."""

from typing import Any

from geotrain.validation import Measured
from geotrain.validation.table import parse_rows

CELLS: dict[str, Any] = {
    "name": "run",
    "layers": 24,
    "hidden": 2048,
    "heads": 16,
    "vocab": 50000,
    "sequence": 2048,
    "tensor_parallel": 2,
    "pipeline_parallel": 2,
    "data_parallel": 2,
    "microbatch": 2,
    "global_batch": 64,
    "gpu": "a100-80gb",
    "precision": "bf16",
    "recompute": "full",
    "seconds": 2.5,
}


def table(*rows: dict[str, Any]) -> str:
    """CSV of rows that differ from CELLS as given; None leaves a cell empty."""
    columns = list(dict.fromkeys([*CELLS, *(column for row in rows for column in row)]))
    lines = [",".join(columns)]
    for row in rows:
        cells = CELLS | row
        lines.append(",".join("" if cells.get(column) is None else str(cells[column]) for column in columns))
    return "\n".join(lines) + "\n"


def make_row(**cells: Any) -> Measured:
    """The row that differs from CELLS as given."""
    (row,) = parse_rows(table(cells), source="runs.csv")
    return row
