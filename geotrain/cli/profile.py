"""`geotrain profile`: what a job's stages take on this device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geotrain.cli._output import JsonOption, print_json

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    from geotrain.training.bench import Figures
    from geotrain.training.jobfile import JobFile
    from geotrain.training.process import Place
    from geotrain.training.profiling import Measurement

_RESTLESS = 0.2
"""A spread above it is worth a word."""


def command(
    file: Annotated[Path, typer.Argument(metavar="JOB|PLAN", help="Job file; or plan file, for its stages.")],
    write: Annotated[bool, typer.Option("--write", help="Put the figures into the job, as its profile.")] = False,
    layers: Annotated[
        int | None,
        typer.Option(metavar="N", help="With a job file: layers of a stage; all of the model's, if not given."),
    ] = None,
    dc: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With a plan: only this data center's stages; others keep theirs."),
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, typer.Option(help="Where to measure; the GPU, if there is one.")
    ] = None,
    repeat: Annotated[int, typer.Option(metavar="N", min=1, help="Measurements, after a few that do not count.")] = 10,
    json: JsonOption = False,
) -> None:
    """Measure what the stages of a job take on this device.

    Forward, recompute, backward, optimizer and memory. Runs what `geotrain train` runs, on random tokens, and takes the
    middle of the measurements. With --write they become the job's `profile`, which replaces the formulas in `geotrain
    simulate` and `geotrain plan`; comments and the order of fields stay as they are. If the job stands in the plan
    file, it is written there.

    With a plan there is an entry for every stage: the first has the embedding, the last the head; the job then goes
    with plans of as many stages only. With a job there is one entry for all: --layers N is a stage from the middle of
    the model, without --layers it is the whole model. Update time and gradient size are those of the largest stage.

    A stage that several GPUs share (tensor_parallel) is measured by as many processes, under torchrun, which meet in
    files: without the `export` and --rdzv-... below, it would listen on all addresses and run what it is sent there.
    Data centers with other GPUs are measured there, one after the other, with --dc.

    Examples:

        geotrain profile plan.yaml

        geotrain profile job.yaml --layers 4 --write

        geotrain profile plan.yaml --dc east --write

        export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 GEOTRAIN_STORE=$(mktemp -d)

        torchrun --rdzv-backend c10d --rdzv-conf store_type=file --rdzv-endpoint $GEOTRAIN_STORE/agents
    --nproc-per-node 8 --no-python geotrain profile plan.yaml --write
    """
    from geotrain.errors import InputError

    try:
        import torch  # noqa: F401
    except ImportError:
        raise InputError("profile needs torch: pip install 'geotrain[train]'") from None
    from geotrain.training.jobfile import JobFile
    from geotrain.training.process import Place
    from geotrain.training.profiling import Profiler

    found, place = JobFile.open(file), Place.of()
    where = _device(device, place)
    try:
        _check(found, place, layers, dc)
        with _together(place, where) as mesh:
            profiler = Profiler(device=where, repeat=repeat, mesh=mesh)
            if found.plan is None:
                measured = profiler.job(found.job, found.job.model.layers if layers is None else layers)
            else:
                measured = profiler.plan(found.plan, found.job.profile, dc)
    except InputError as error:
        raise type(error)(f"{file}: {error}") from None
    if place.rank:
        return
    if write:
        found.write(measured.profile)
    written = found.path if write else None
    if json:
        print_json(_answer(measured, where, repeat, written))
    else:
        _show(found, measured, where, repeat, written)


def _check(found: JobFile, place: Place, layers: int | None, dc: str | None) -> None:
    from geotrain.errors import InputError

    if found.plan is None:
        if dc is not None:
            raise InputError("is a job, and --dc goes with a plan")
        return
    if layers is not None:
        raise InputError("is a plan, which says how many layers its stages have; --layers goes with a job")
    width = found.plan.tensor_parallel
    if width != place.size:
        raise InputError(
            f"tensor_parallel is {width} and there must be as many processes, not {place.size}: "
            f"use torchrun with --nproc-per-node {width} as `geotrain profile --help` shows"
        )
    kinds = {found.plan.datacenter_of(slot).gpu.name for slot in range(len(found.plan.stages))}
    if dc is None and len(kinds) > 1 and place.rank == 0:
        there = " and ".join(sorted(kinds))
        typer.echo(f"warning: the plan has {there}; this device stands for all, --dc measures one's own", err=True)


def _device(choice: str | None, place: Place) -> torch.device:
    import torch

    from geotrain.errors import InputError

    if choice == "cuda" and not torch.cuda.is_available():
        raise InputError("--device is cuda and must be cpu: torch sees no GPU here")
    if choice == "cpu":
        torch.set_num_threads(1)
        return torch.device("cpu")
    return place.device()


@contextmanager
def _together(place: Place, device: torch.device) -> Iterator[DeviceMesh | None]:
    """The processes that share a stage; None where there is one."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    if place.size == 1:
        yield None
        return
    place.join(deadline_s=300.0)
    try:
        yield init_device_mesh(device.type, (place.size,))
    finally:
        dist.destroy_process_group()


def _answer(measured: Measurement, device: torch.device, repeat: int, written: Path | None) -> dict[str, Any]:
    from geotrain.training.process import device_name

    return {
        "device": device_name(device),
        "repeat": repeat,
        "stages": [{"stage": slot, **_figures(figures)} for slot, figures in measured.figures.items()],
        "profile": measured.profile.dump(),
        "written": None if written is None else str(written),
    }


def _figures(figures: Figures) -> dict[str, Any]:
    return {
        "layers": figures.layers,
        "embedding": any(cut.embeds for cut in figures.chunks),
        "head": any(cut.heads for cut in figures.chunks),
        **{name: figures.median_s(name) for name in figures.times_s},
        "spread": {name: figures.spread(name) for name in figures.times_s},
        "static_bytes": figures.static_bytes,
        "activation_bytes": figures.activation_bytes,
        "workspace_bytes": figures.workspace_bytes,
        "gradient_bytes": figures.gradient_bytes,
    }


def _show(found: JobFile, measured: Measurement, device: torch.device, repeat: int, written: Path | None) -> None:
    from rich.console import Console

    from geotrain.reports.textbars import figure_table
    from geotrain.training.process import device_name
    from geotrain.units import format_bytes, format_seconds, format_traffic

    times = ("forward_s", "recompute_s", "backward_s", "weight_grad_s", "optimizer_s")
    table = figure_table(f"{found.job.model.name} on {device_name(device)}")
    for name in ("stage", "forward", "recompute", "backward", "of it W", "update", "held", "static"):
        table.add_column(name, justify="right", no_wrap=True)
    for slot, figures in measured.figures.items():
        spent = [format_seconds(figures.median_s(name)) for name in times]
        sizes = [format_bytes(size) for size in (figures.activation_bytes, figures.static_bytes)]
        table.add_row(str(slot) if found.plan else "all", *spent, *sizes)
    Console(highlight=False).print(table)
    profile = measured.profile
    assert profile.boundary_bytes is not None and profile.gradient_bytes is not None
    typer.echo(f"a boundary carries {format_traffic(profile.boundary_bytes)} per microbatch and direction")
    spread = max(figures.spread(name) for figures in measured.figures.values() for name in times)
    typer.echo(f"medians of {repeat}; the middle half of the measurements spans up to {spread:.0%}")
    if spread > _RESTLESS:
        typer.echo("warning: that is much: is the device busy with other work?", err=True)
    typer.echo(f"profile: {written}" if written else f"not written: --write puts the profile into {found.path}")
