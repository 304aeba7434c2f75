"""What `geotrain demo live` plays: a plan, a small model, and requests for it."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import yaml

from geotrain.errors import GeotrainError
from geotrain.files import read_text, write_text
from geotrain.model import Config, Part, weights
from geotrain.plan import Plan
from geotrain.prefill.calibration import Calibration, Calibrations, prefill_time
from geotrain.prefill.settings import LIVE
from geotrain.prefill.trace import Trace, generate
from geotrain.reports.live import Blocks
from geotrain.seating import Seating
from geotrain.simulation.prefill.scene import Scene, saturating_rps
from geotrain.tokens.tokenizer import Tokenizer
from geotrain.training.launch import needed_testbed
from geotrain.workload.catalog import find_model

PLAN = Path(__file__).parents[1] / "examples" / "live" / "plan.yaml"
LIKE, NAME = "llama-2-13b", "tiny"
MOST_TOKENS = 2000
_TRACE = "azure-conversation"
_SLO_S = 5.0
_LOAD = 0.87
"""Of a rate that is half as much again as the bubbles hold."""
_ON_STEPS, _QUIET_STEPS = 6, 4
_BYTES = 256


def possible_plan(path: Path) -> tuple[Plan, str]:
    """The built-in one and where it can run; without a testbed, over a WAN like loopback."""
    plan = Plan.load(PLAN)
    write_text(path, read_text(PLAN))
    with suppress(GeotrainError), needed_testbed(Seating(plan)):
        return plan, "testbed"
    content = yaml.safe_load(read_text(PLAN))
    content["cluster"]["wan"] = {"default": {"rtt": "0.1 ms", "pair_cap": "4 Gbit/s"}}
    write_text(path, yaml.safe_dump(content))
    return Plan.load(path), "local"


def made_model(directory: Path) -> Config:
    """As small as can be, and its weights are random; every byte of a text is a token."""
    tokenizer = Tokenizer.train([], vocab_size=_BYTES + 1)
    config = Config(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=8,
        num_attention_heads=1,
        num_key_value_heads=1,
        vocab_size=tokenizer.vocab_size,
        max_position_embeddings=MOST_TOKENS + 64,
    )
    part = Part(config)
    part.initialize(0)
    directory.mkdir()
    weights.save(directory, config, part.named_parameters())
    write_text(directory / "tokenizer.json", tokenizer.json)
    return config


def made_scene(plan: Plan, config: Config) -> Scene:
    """The small model, with the times of the one that it stands for."""
    gpus = {dc.gpu.name: dc.gpu for dc in plan.cluster.datacenters}
    known = {name: prefill_time(find_model(LIKE), gpu, 1)[0] for name, gpu in gpus.items()}
    calibrations = tuple(
        Calibration(
            model=NAME,
            gpu=name,
            tensor_parallel=1,
            fixed_s=time.fixed_s,
            per_cached_s=time.per_cached_s,
            per_token_s=time.per_token_s,
            per_pair_s=time.per_pair_s,
            spread=time.spread,
        )
        for name, time in known.items()
    )
    known_times = Calibrations(calibrations=calibrations)
    settings = replace(LIVE, slo_s=_SLO_S)
    return Scene(plan=plan, models=(config.shape(NAME),), settings=settings, calibrations=known_times)


def made_trace(scene: Scene, seconds: float) -> tuple[Trace, Blocks]:
    """More requests than the bubbles hold, in blocks of whole steps."""
    step_s = scene.bubbles.step_time_s
    # Who was let in is still served when nobody comes any more.
    on_s, off_s = _ON_STEPS * step_s, scene.settings.slo_s + _QUIET_STEPS * step_s
    blocks = Blocks(on_s=on_s, off_s=off_s, rounds=max(1, round(seconds / (on_s + off_s))))
    known = generate(_TRACE)
    cut = (replace(one, input_tokens=min(one.input_tokens, MOST_TOKENS)) for one in known.requests)
    trace = replace(known, requests=tuple(cut))
    return blocks.paused(trace.at_rate(saturating_rps(scene, trace)).scaled(_LOAD)), blocks
