"""`geotrain launch`: start all processes of a training run, or write the scripts that do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geotrain.cli._ending import ended_by_signals
from geotrain.cli._output import JsonOption, print_json
from geotrain.cli._plan import PlanArgument

if TYPE_CHECKING:
    from geotrain.training.launch import Ground, Launch, Process


def command(
    plan: PlanArgument,
    on: Annotated[
        Literal["local", "testbed", "slurm", "kubernetes"], typer.Option("--on", help="On what to run it; see above.")
    ],
    out: Annotated[Path, typer.Option(metavar="RUN", help="Directory of the run, made if missing.")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="-- OPTION...", help="Further options of `geotrain train`.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Tokens of `geotrain data`, where the processes see them.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in RUN.")] = False,
    max_restarts: Annotated[
        int, typer.Option(metavar="N", help="How often a data center's processes are started again; 0: no torchrun.")
    ] = 3,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No keys: anybody may connect and read. For a private link only.")
    ] = False,
    control: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="slurm, kubernetes: where others reach the first data center."),
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="NAME", help="kubernetes: a container image with geotrain and torch.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would run where; starts no training, writes nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Start `geotrain train` on all GPUs of a plan.

    Each data center has a torchrun of its own. --on says where:

    local: everything on this machine, over loopback.

    testbed: everything on this machine, each node in a network namespace, over a WAN as the plan's cluster has it.
    Needs iproute2, and root or user namespaces.

    slurm: writes RUN/slurm: a batch script for each data center, one that makes keys and one that submits all.

    kubernetes: writes RUN/kubernetes: for each data center a PyTorchJob (Kubeflow's training operator) and what it
    needs, a script that makes keys and one that applies all.

    local and testbed make keys in RUN/keys, show the progress of the first data center, and keep what each process
    says in RUN/logs. Ctrl-C ends all of them and says which step is saved; `--resume`, before `--`, goes on from there.
    If one fails for good, so does the launch, with its last words and its exit code. What cannot be trained is refused
    before any is started, also with --dry-run.

    Examples:

        geotrain launch plan.yaml --on local --data data --out run -- --steps 200

        geotrain launch plan.yaml --on testbed --out run --max-restarts 0 -- --compute emulated --steps 20

        geotrain launch plan.yaml --on slurm --data /scratch/data --out run --control east-node1:29400 --dry-run
    """
    from geotrain.errors import InputError
    from geotrain.plan import Plan
    from geotrain.runnable import check_runnable
    from geotrain.seating import Seating
    from geotrain.training.launch import Launch
    from geotrain.training.launch.launch import check_out

    if control is not None and on in ("local", "testbed"):
        raise InputError(f"--control is {control!r} and is only for slurm and kubernetes: on {on} it is found")
    if image is not None and on != "kubernetes":
        raise InputError(f"--image is {image!r} and is only for kubernetes")
    check_out(out, resume=resume)
    launch = Launch(
        plan_file=plan,
        seating=Seating(Plan.load(plan)),
        out=out,
        data=data,
        insecure=insecure,
        max_restarts=max_restarts,
        options=tuple(options or ()),
        resume=resume,
    )
    try:
        check_runnable(launch.seating.plan, emulated=launch.is_emulated)
    except InputError as error:
        raise InputError(f"{plan}: {error}") from None
    if on in ("slurm", "kubernetes"):
        _write(launch, on, control, image, dry_run=dry_run, json=json)
    elif dry_run:
        launch.check()
        _show(_planned(launch, on), on, [], json=json)
    else:
        _run(launch, on, json=json)


def _write(
    launch: Launch,
    on: Literal["slurm", "kubernetes"],
    control: str | None,
    image: str | None,
    *,
    dry_run: bool,
    json: bool,
) -> None:
    from geotrain.training.launch.kubernetes import kubernetes_files, kubernetes_processes
    from geotrain.training.launch.scripts import write
    from geotrain.training.launch.slurm import slurm_files, slurm_processes

    if on == "slurm":
        files, planned = slurm_files(launch, control), slurm_processes(launch, control)
    else:
        files, planned = kubernetes_files(launch, control, image), kubernetes_processes(launch, control)
    paths = [launch.out / on / name for name in files]
    if dry_run:
        _show(planned, on, paths, json=json)
        return
    lock = launch.lock()
    try:
        write(launch.out / on, files)
    finally:
        lock.release()
    if json:
        print_json({"on": on, "files": [str(path) for path in paths]})
        return
    for path in paths:
        typer.echo(f"written: {path}")
    submit = launch.out / on / ("submit.sh" if on == "slurm" else "apply.sh")
    first = "" if launch.insecure else f"{launch.out / on / 'keys.sh'}, then "
    typer.echo(f"\nnext: read them, then {first}{submit}")


def _planned(launch: Launch, on: str) -> list[Process]:
    from geotrain.training.launch import Loopback, Namespaces, needed_testbed, processes

    seating = launch.seating
    ground: Ground = Loopback(seating) if on == "local" else Namespaces(seating, needed_testbed(seating))
    return list(processes(launch, ground))


def _show(planned: list[Process], on: str, files: list[Path], *, json: bool) -> None:
    from geotrain.training.launch.overview import overview_json, overview_lines

    if json:
        answer: dict[str, Any] = {"on": on, "dry_run": True, "processes": overview_json(planned)}
        print_json(answer | {"files": [str(path) for path in files]})
        return
    for line in overview_lines(planned):
        typer.echo(line)
    for path in files:
        typer.echo(f"would write: {path}")


def _say_what_is_kept(launch: Launch, ended_by: type[BaseException] | None) -> None:
    """After Ctrl-C or a signal: the step that is saved, and the command that goes on."""
    import shlex
    import sys

    if ended_by is None or not issubclass(ended_by, KeyboardInterrupt | SystemExit) or not launch.logs.is_dir():
        return
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    again = shlex.join(["geotrain", *words[:end], *(() if "--resume" in words else ("--resume",)), *words[end:]])
    step = launch.saved_step
    kept = "no step is saved yet" if step is None else f"saved up to step {step} in {launch.out / 'checkpoints'}"
    typer.echo(f"ended: {kept}; to go on: {again}", err=True)


def _run(launch: Launch, on: str, *, json: bool) -> None:
    import time
    from contextlib import ExitStack

    from geotrain.errors import InputError
    from geotrain.training.launch import Loopback, Namespaces, ProcessFailedError, Run, needed_testbed
    from geotrain.units import format_seconds

    began_s = time.monotonic()
    with ended_by_signals(), ExitStack() as stack:
        launch.check()
        ground: Ground
        # Called last, when no process is left that could still save a step.
        stack.push(lambda kind, error, trace: _say_what_is_kept(launch, kind))
        if on == "local":
            ground = Loopback(launch.seating)
        else:
            ground = Namespaces(launch.seating, stack.enter_context(needed_testbed(launch.seating)))
        run = stack.enter_context(Run(launch, ground))
        try:
            run.wait(tell=lambda text: typer.echo(text, nl=False, err=True))
        except ProcessFailedError as failure:
            if failure.exit_code != InputError.exit_code:
                typer.echo("\n".join(failure.lines), err=True)
            raise
    elapsed_s = time.monotonic() - began_s
    if json:
        print_json({"on": on, "out": str(launch.out), "logs": str(launch.logs), "elapsed_s": elapsed_s})
        return
    typer.echo(f"done in {format_seconds(elapsed_s)}: {launch.out}")
