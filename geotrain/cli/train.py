"""`geotrain train`: one process of a training run."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from geotrain.cli._output import JsonOption, print_json
from geotrain.cli._plan import PlanArgument

if TYPE_CHECKING:
    from geotrain.training.idling import Listener


def command(
    plan: PlanArgument,
    dc: Annotated[str, typer.Option(metavar="NAME", help="The data center that this process is in.")],
    out: Annotated[Path, typer.Option(metavar="RUN", help="Directory of the run: log, spans, checkpoints, model.")],
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Tokens, as `geotrain data` writes them.")] = None,
    steps: Annotated[int, typer.Option(metavar="N", help="Optimizer steps in all.")] = 100,
    compute: Annotated[
        Literal["torch", "emulated"],
        typer.Option(help="emulated: hold the device for the profile's times and send real bytes."),
    ] = "torch",
    control: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where rank 0 of the first data center meets those of the others.")
    ] = "127.0.0.1:29400",
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where this process listens for other data centers.")
    ] = "127.0.0.1",
    keys: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keys of `geotrain keys`: DIR/east-0 for rank 0 of east.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No keys: anybody may connect and read. For a private link only.")
    ] = False,
    start: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Weights to begin with: Hugging Face safetensors.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the first weights and the order of the data.")] = 0,
    learning_rate: Annotated[float, typer.Option(metavar="RATE", help="The peak.")] = 3e-4,
    warmup: Annotated[int, typer.Option(metavar="N", help="Steps of linear warm-up; a cosine follows.")] = 20,
    weight_decay: Annotated[float, typer.Option(metavar="X", help="Of matrices.")] = 0.1,
    clip: Annotated[float, typer.Option(metavar="NORM", help="Most that all gradients' norm may be; 0: any.")] = 1.0,
    sharded: Annotated[
        bool, typer.Option("--sharded", help="Spread the optimizer's state over the copies of a stage.")
    ] = False,
    checkpoint_every: Annotated[int, typer.Option(metavar="N", help="Steps; 0: only at the end.")] = 50,
    keep: Annotated[int, typer.Option(metavar="N", help="Checkpoints to keep.")] = 2,
    resume: Annotated[bool, typer.Option(help="Go on from the newest checkpoint that all processes have.")] = True,
    record: Annotated[
        str | None, typer.Option(metavar="A-B", help="Steps whose spans are kept, from 0; default: the last ten.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Prometheus metrics of the run, on loopback.")
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write RUN/tensorboard.")] = False,
    announce: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Say there when GPUs are idle, for `geotrain serve`; in memory: /dev/shm/run."
        ),
    ] = None,
    deadline: Annotated[str, typer.Option(metavar="TIME", help="The longest that anything is waited for.")] = "300 s",
    peer_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="A data center that is silent for so long is lost.")
    ] = "30 s",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say whether plan, data, weights and checkpoints can be trained.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Train as the plan says, as one of its processes.

    One process per GPU, under torchrun in each data center. `geotrain launch` starts all of them; this is what it
    starts. Each data center is a torch.distributed world of its own, the data centers meet at the control address, and
    activations and gradients cross the WAN over TLS.

    Every process plays its slot's part of the schedule that `geotrain simulate` shows. Spans of the last steps are left
    in RUN/spans, for `geotrain compare-runs PLAN RUN`.

    A process that loses another one ends with an error; torchrun starts it again, and all go on from the newest
    checkpoint that they have in common.

    Under your own torchrun the processes meet in files: without the `export` and --rdzv-... below, it would listen on
    all addresses and run what it is sent there.

    Examples:

        geotrain launch plan.yaml --on local --data data --out run

        export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 GEOTRAIN_STORE=$(mktemp -d)

        torchrun --rdzv-backend c10d --rdzv-conf store_type=file --rdzv-endpoint $GEOTRAIN_STORE/agents
    --nproc-per-node 4 --no-python geotrain train plan.yaml --dc east --data data --out run --keys keys
    """
    from geotrain.cli._quantity import quantity
    from geotrain.errors import GeotrainError, InputError
    from geotrain.plan import Plan
    from geotrain.units import TIME

    try:
        import torch  # noqa: F401
    except ImportError:
        raise InputError("training needs torch: pip install 'geotrain[train]'") from None
    if (keys is None) != insecure:
        raise InputError("give either --keys DIR (`geotrain keys` makes them) or --insecure")
    from geotrain.training.journal import Journal
    from geotrain.training.optimizer import Recipe
    from geotrain.training.options import Options
    from geotrain.training.preflight import check
    from geotrain.training.trainer import train

    decided = Plan.load(plan)
    options = Options(
        dc=dc,
        out=out,
        data=data,
        steps=steps,
        compute=compute,
        control=_address(control),
        host=host,
        keys=keys,
        start=start,
        seed=seed,
        recipe=Recipe(learning_rate=learning_rate, warmup_steps=warmup, weight_decay=weight_decay, clip=clip),
        sharded=sharded,
        checkpoint_every=checkpoint_every,
        keep=keep,
        resume=resume,
        record=_steps(record),
        devices=announce if compute == "emulated" else None,
        metrics_port=metrics_port,
        tensorboard=tensorboard,
        deadline_s=quantity("--deadline", deadline, TIME),
        peer_timeout_s=quantity("--peer-timeout", peer_timeout, TIME),
    )
    if dry_run:
        check(decided, options)
        if json:
            print_json({"dry_run": True})
        else:
            typer.echo(f"{plan}: can be trained")
        return
    try:
        last = train(
            decided,
            options,
            journal=lambda: Journal(options, quiet=json),
            listen=None if announce is None else partial(_announcer, announce),
        )
    except GeotrainError as error:
        # Threads may still wait for a peer that is gone; they have no say in how long this process lasts.
        typer.echo(f"error: {' '.join(str(error).splitlines())}", err=True)
        sys.stdout.flush()
        os._exit(error.exit_code)
    if json and last is not None:
        print_json(last)


def _announcer(directory: Path, name: str) -> Listener:
    """Training goes on without, for nothing of it depends on who listens."""
    from geotrain.errors import RunError
    from geotrain.serving.announcer import Announcer
    from geotrain.training.idling import Nobody

    try:
        return Announcer(directory, name)
    except RunError as error:
        typer.echo(f"warning: {name}: {error}; its idle time is not announced", err=True)
        return Nobody()


def _address(text: str) -> tuple[str, int]:
    from geotrain.errors import InputError

    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"--control is {text!r} and must be HOST:PORT")
    return host.strip("[]"), int(port)


def _steps(text: str | None) -> tuple[int, int] | None:
    from geotrain.errors import InputError

    if text is None:
        return None
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
        raise InputError(f"--record is {text!r} and must be two steps such as 10-19")
    return int(first), int(last or first)
