"""`geotrain catalog`: the GPUs and models that files can name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from geotrain.cli._output import JsonOption, print_json

if TYPE_CHECKING:
    from rich.table import Table


def command(json: JsonOption = False) -> None:
    """List the GPUs and models that files can name.

    Examples:

        gpu: a100-80gb                      in a cluster file

        model: llama-3.1-8b                 in a job file

        model: {name: gpt-a, layers: 48}    the same, changed
    """
    from geotrain.cluster import GPUS
    from geotrain.workload import MODELS

    if json:
        gpus = [gpu.model_dump(mode="json") for gpu in GPUS.values()]
        models = [{**model.model_dump(mode="json"), "parameters": model.parameters} for model in MODELS.values()]
        print_json({"gpus": gpus, "models": models})
        return

    from rich.console import Console

    console = Console(highlight=False)
    console.print(_gpu_table(), _model_table(), sep="\n\n")


def _gpu_table() -> Table:
    from geotrain.cluster import GPUS
    from geotrain.units import format_bytes, format_flops, format_traffic

    def peak(flops: float | None) -> str:
        return "-" if flops is None else f"{format_flops(flops)}/s"

    rows = [
        (
            gpu.name,
            *map(peak, (gpu.bf16, gpu.fp16, gpu.fp32)),
            format_bytes(gpu.memory_bytes),
            f"{format_traffic(gpu.memory_bandwidth)}/s",
        )
        for gpu in GPUS.values()
    ]
    return _table("GPUs", ("name", "bf16", "fp16", "fp32", "memory", "bandwidth"), rows)


def _model_table() -> Table:
    from geotrain.workload import MODELS

    rows = [
        (
            model.name,
            f"{model.parameters / 1e9:.1f}",
            str(model.layers),
            str(model.hidden),
            f"{model.heads}/{model.kv_heads}",
            str(model.ffn),
            str(model.vocab),
            str(model.sequence),
        )
        for model in MODELS.values()
    ]
    columns = ("name", "B params", "layers", "hidden", "heads/kv", "ffn", "vocab", "sequence")
    return _table("Models", columns, rows)


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, padding=(0, 1), pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column == "name" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
