"""Tables of measured runs as CSV. Each value that cannot be used is named by line and column in one sentence.

Blank lines and lines that begin with # are skipped, columns nobody asked for too. Left out or empty:
kv_heads is heads, ffn 4 x hidden, interleave 1, gpus_per_node 8, head_dim hidden / heads. activation is gelu, unless
ffn is below 4 x hidden or no multiple of hidden: then it is swiglu, whose models choose ffn by their size in all.
attention is unfused on V100 and A100, whose published tables mostly precede FlashAttention, and fused on newer GPUs.
sequence_parallel is on with tensor parallelism, except with full recompute, which it made unnecessary.
"""

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from geotrain.cluster import Gpu
from geotrain.cluster.catalog import find_gpu
from geotrain.cluster.gpu import Precision
from geotrain.complaints import complaint
from geotrain.errors import InputError
from geotrain.files import csv_lines, read_text
from geotrain.hints import hint
from geotrain.validation.measured import Attention, Measured, RanRecompute
from geotrain.workload import Model

REQUIRED = (
    "layers", "hidden", "heads", "vocab", "sequence", "tensor_parallel", "pipeline_parallel", "data_parallel",
    "microbatch", "global_batch", "gpu", "precision", "recompute", "seconds",
)  # fmt: skip
OPTIONAL = (
    "name", "kv_heads", "ffn", "interleave", "gpus_per_node", "head_dim", "activation", "attention",
    "sequence_parallel", "source",
)  # fmt: skip
_BEFORE_FUSED_ATTENTION = ("v100", "a100-40gb", "a100-80gb")
_YES_NO = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}


def published_rows() -> list[Measured]:
    """The step times that come with the package."""
    path = resources.files("geotrain.validation") / "published.csv"
    return parse_rows(path.read_text(encoding="utf-8"), source="published.csv")


def read_rows(path: Path) -> list[Measured]:
    """A person's table; InputError names the file, line and column of what is wrong."""
    return parse_rows(read_text(path), source=str(path))


def parse_rows(text: str, *, source: str) -> list[Measured]:
    """The rows of a table; all lines are checked, the first problem is told and the others are counted."""
    lines = csv_lines(text, source=source)
    _, header = next(lines, (0, []))
    columns = _columns(header, source)
    rows, problems = [], []
    for number, cells in lines:
        if len(cells) > len(columns):
            problems.append(f"line {number} has {len(cells)} cells and must have {len(columns)}, like the first line")
            continue
        values = dict(zip(columns, (cell.strip() for cell in cells), strict=False))
        try:
            rows.append(_Line(number, {column: value for column, value in values.items() if value}).measured(source))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        more = len(problems) - 1
        also = f" (and {more} more line{'s' * (more > 1)} with problems)" if more else ""
        raise InputError(f"{source}: {problems[0]}{also}")
    if not rows:
        raise InputError(f"{source}: has no rows below its first line and must have at least one")
    return rows


def _columns(header: list[str], source: str) -> list[str]:
    """The names of the first line, which must have all that is required."""
    columns = [cell.strip().lower() for cell in header]
    if not columns:
        raise InputError(f"{source}: is empty and must have a first line of column names")
    missing = [column for column in REQUIRED if column not in columns]
    if missing:
        unknown = [column for column in columns if column and column not in REQUIRED + OPTIONAL]
        near = next((f"; did you mean {missing[0]!r} by {name!r}?" for name in unknown
                     if hint(name, [missing[0]]).startswith("did")), "")  # fmt: skip
        raise InputError(f"{source}: the first line has no column {', '.join(map(repr, missing))}{near}")
    twice = next((column for column in columns if column and columns.count(column) > 1), None)
    if twice:
        raise InputError(f"{source}: the first line has the column {twice!r} twice")
    return columns


class _Line:
    """One line's cells, read one column at a time; ValueError with a sentence that names line and column."""

    def __init__(self, number: int, cells: dict[str, str]) -> None:
        self._number = number
        self._cells = cells

    def measured(self, source: str) -> Measured:
        """All columns of the line, and how they go together."""
        gpu = self._read("gpu", find_gpu)
        recompute = self._one_of("recompute", get_args(RanRecompute), {"true": "full", "false": "none"})
        tensor_parallel = self._whole("tensor_parallel")
        spread = tensor_parallel > 1 and recompute != "full"
        unfused = "unfused" if gpu.name in _BEFORE_FUSED_ATTENTION else "fused"
        row = Measured(
            name=self._cells.get("name", f"line {self._number}"),
            source=self._cells.get("source", source),
            model=self._model(),
            sequence=self._whole("sequence"),
            tensor_parallel=tensor_parallel,
            pipeline_parallel=self._whole("pipeline_parallel"),
            data_parallel=self._whole("data_parallel"),
            microbatch=self._whole("microbatch"),
            global_batch=self._whole("global_batch"),
            gpu=gpu,
            precision=self._precision(gpu),
            recompute=recompute,
            interleave=self._whole("interleave", 1),
            gpus_per_node=self._whole("gpus_per_node", 8),
            attention=self._one_of("attention", get_args(Attention), {}, unfused),
            sequence_parallel=self._read("sequence_parallel", _yes_or_no, spread),
            seconds=self._read("seconds", _positive),
        )
        self._check(row)
        return row

    def _model(self) -> Model:
        hidden, ffn = self._whole("hidden"), self._whole("ffn", 0)
        gated = "swiglu" if 0 < ffn < 4 * hidden or ffn % hidden else "gelu"
        fields: dict[str, Any] = {
            "name": self._cells.get("name", f"line {self._number}"),
            "layers": self._whole("layers"),
            "hidden": hidden,
            "heads": self._whole("heads"),
            "kv_heads": self._whole("kv_heads", 0),
            "head_dim": self._whole("head_dim", 0),
            "ffn": ffn,
            "activation": self._one_of("activation", ("gelu", "swiglu"), {}, gated),
            "vocab": self._whole("vocab"),
            "tied_embeddings": True,
        }
        try:
            return Model.model_validate(fields)
        except ValidationError as error:
            raise ValueError(f"line {self._number}: {complaint(error, Model)}") from None

    def _precision(self, gpu: Gpu) -> Any:
        precision: Any = self._one_of("precision", get_args(Precision), {})
        try:
            gpu.peak_flops(precision)
        except InputError as error:
            raise ValueError(f"line {self._number}: {error}") from None
        return precision

    def _check(self, row: Measured) -> None:
        for column, divisor, of in [
            ("heads", row.tensor_parallel, "tensor_parallel"),
            ("global_batch", row.microbatch * row.data_parallel, "microbatch x data_parallel"),
        ]:
            if int(float(self._cells[column])) % divisor:
                raise ValueError(
                    f"line {self._number}: {column} is {self._cells[column]} and must be a multiple of {of}, {divisor}"
                )
        if row.pipeline_parallel > row.model.layers:
            raise ValueError(
                f"line {self._number}: pipeline_parallel is {row.pipeline_parallel} and must be at most layers, "
                f"{row.model.layers}"
            )

    def _whole(self, column: str, default: int | None = None) -> int:
        number: int = self._read(column, _whole_number, default)
        return number

    def _one_of(self, column: str, choices: tuple[str, ...], also: dict[str, Any], default: Any = None) -> Any:
        def choose(text: str) -> str:
            chosen: str = also.get(text.lower(), text.lower())
            if chosen not in choices:
                raise ValueError(f"must be {', '.join(choices[:-1])} or {choices[-1]}")
            return chosen

        return self._read(column, choose, default)

    def _read(self, column: str, convert: Callable[[str], Any], default: Any = None) -> Any:
        text = self._cells.get(column)
        if text is None:
            if default is None:
                raise ValueError(f"line {self._number}: {column} is empty")
            return default
        try:
            return convert(text)
        except ValueError as error:
            raise ValueError(f"line {self._number}: {column} is {text!r} and {error}") from None


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < float("inf"):
        raise ValueError("must be a number")
    return number


def _whole_number(text: str) -> int:
    number = _number(text)
    if number != int(number) or number < 1:
        raise ValueError("must be a whole number of at least 1")
    return int(number)


def _positive(text: str) -> float:
    number = _number(text)
    if number <= 0:
        raise ValueError("must be above 0")
    return number


def _yes_or_no(text: str) -> bool:
    if text.lower() not in _YES_NO:
        raise ValueError("must be true or false")
    return _YES_NO[text.lower()]
