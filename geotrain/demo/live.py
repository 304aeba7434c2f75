"""Training over an emulated WAN and a model served from its bubbles, as real processes, and the same simulated."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from geotrain.demo.load import Answers, send
from geotrain.demo.process import started
from geotrain.demo.scene import LIKE, MOST_TOKENS, NAME, made_model, made_scene, made_trace, possible_plan
from geotrain.reports.live import Live, Side, prefilled, simulated, trained
from geotrain.simulation.prefill.study import study

_SKIPPED_STEPS, _WARM_STEPS = 2, 4
_START_S = 180.0
Say = Callable[[str], None]


def played(scratch: Path, seconds: int, say: Say) -> Live:
    """Training with serving beside it for about that long, and the same simulated."""
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
