"""`geotrain demo live`: training over an emulated WAN, and a model served from its bubbles, as real processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geotrain.cli._output import JsonOption, check_writable, print_json

if TYPE_CHECKING:
    from geotrain.cli._demo_load import Answers
    from geotrain.reports.live import Live

_SKIPPED_STEPS, _WARM_STEPS = 2, 4
_START_S = 180.0
_IN_MEMORY = Path("/dev/shm")
Say = Callable[[str], None]


def live(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where live.html goes.")] = Path("out"),
    seconds: Annotated[
        int, typer.Option(metavar="S", min=10, max=3600, help="How long requests come, pauses included.")
    ] = 60,
    json: JsonOption = False,
) -> None:
    """Train over an emulated WAN and serve from its bubbles.

    Both at the same time, and both on one page.

    Real processes, sockets and requests: `geotrain launch` on a testbed of three data centers, `geotrain serve` beside
    it, and OpenAI's client, which sends a trace of requests in blocks with pauses between, so that steps with and
    without load are compared within one run. GPUs are emulated: they are busy for as long as a real one would be. The
    same plan and trace are then simulated. Takes about two minutes; without root or user namespaces there is no WAN.

    Examples:

        geotrain demo live

        geotrain demo live --seconds 200 --out out --json
    """
    import tempfile

    from geotrain.cli._ending import ended_by_signals
    from geotrain.errors import InputError
    from geotrain.files import write_text

    try:
        import fastapi  # noqa: F401
        import openai  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise InputError(f"the live demo needs {error.name}: pip install 'geotrain[serve,train]' openai") from None
    from geotrain.reports.live_html import live_html, live_table

    page = out / "live.html"
    check_writable(page)
    memory = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with ended_by_signals(), tempfile.TemporaryDirectory(prefix="geotrain-live-", dir=memory) as scratch:
        found = played(Path(scratch), seconds, lambda words: typer.echo(words, err=True))
    write_text(page, live_html(found))
    if json:
        print_json(found.json())
        return

    from rich.console import Console

    Console(highlight=False).print(live_table(found))
    typer.echo(f"page: {page}  (open it in a browser)")


def played(scratch: Path, seconds: int, say: Say) -> Live:
    """Training with serving beside it for about that long, and the same simulated."""
    import asyncio

    import numpy as np

    from geotrain.cli._demo_load import send
    from geotrain.cli._demo_process import started
    from geotrain.cli._demo_scene import LIKE, MOST_TOKENS, NAME, made_model, made_scene, made_trace, possible_plan
    from geotrain.reports.live import Live, Side, simulated
    from geotrain.reports.live_files import prefilled, trained
    from geotrain.simulation.prefill.study import study

    began_s = time.monotonic()

    def tell(words: str) -> None:
        say(f"{time.monotonic() - began_s:4.0f} s  {words}")

    plan, on = possible_plan(scratch / "plan.yaml")
    config = made_model(scratch / NAME)
    scene = made_scene(plan, config)
    trace, blocks = made_trace(scene, seconds)
    announce, journal = scratch / "announce", scratch / "served" / "prefill.jsonl"
    tell(f"a {NAME} Llama with random weights; {plan.num_gpus} emulated GPUs, {_where(on)}")
    served = ["serve", scratch / "plan.yaml", "--model", scratch / NAME, "--announce", announce, "--port", 0]
    served += ["--compute", "emulated", "--like", LIKE, "--slo", f"{scene.settings.slo_s} s", "--out", journal.parent]
    with started(scratch / "serve.log", served) as serving:
        url = serving.until(scratch / "serve.log", r"at (http\S+)", _START_S)
        tell(f"serving at {url}")
        asyncio.run(send(url, NAME, trace.requests[:1], 0.0, _tenths(tell, 1)))
        tell("training starts")
        steps = round(blocks.duration_s / scene.bubbles.step_time_s) + _WARM_STEPS
        launch = ["launch", scratch / "plan.yaml", "--on", on, "--out", scratch / "run", "--max-restarts", 0]
        launch += ["--insecure", "--", "--compute", "emulated", "--steps", steps, "--announce", announce]
        with started(scratch / "train.log", [*launch, "--record", f"0-{steps}"]) as training:
            training.until(journal, rf'"number": ({_WARM_STEPS}),', _START_S)
            zero_s = time.monotonic()
            tell(f"{len(trace.requests):,} requests follow in {blocks.rounds} blocks")
            answers = asyncio.run(send(url, NAME, trace.requests, zero_s, _tenths(tell, len(trace.requests))))
            tell("training ends")
            training.finish(_START_S)
    tell("the same is simulated")
    spans, edges_s, training_s = trained(plan, scratch / "run", zero_s=zero_s, skip=_SKIPPED_STEPS)
    prefill, overruns = prefilled(plan, journal, zero_s=zero_s)
    return Live(
        plan=plan,
        on=on,
        trace=trace.name,
        rate_rps=len(trace.requests) / (blocks.on_s * blocks.rounds),
        most_tokens=MOST_TOKENS,
        like=LIKE,
        slo_s=scene.settings.slo_s,
        training=spans,
        measured=Side(
            blocks=blocks,
            edges_s=edges_s,
            training_s=training_s,
            num_slots=len(scene.slots),
            prefill=prefill,
            ttft_s=np.array(answers.ttft_s),
            rejected=answers.rejected,
            failed=len(answers.failures),
            overruns=overruns,
        ),
        simulated=simulated(study(scene, trace, rivals=False), blocks),
    )


def _where(on: str) -> str:
    return "three data centers, 40 ms apart" if on == "testbed" else "over loopback, for no testbed is possible here"


def _tenths(tell: Say, number: int) -> Callable[[Answers], None]:
    """Tells of every tenth of the requests."""

    def progress(answers: Answers) -> None:
        if answers.number * 10 // number > (answers.number - 1) * 10 // number:
            tell(f"{answers.number:,} requests: {len(answers.ttft_s):,} answered, {answers.rejected:,} told 429")

    return progress
