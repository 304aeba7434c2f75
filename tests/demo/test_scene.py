"""What `geotrain demo live` plays; all of it together takes two minutes, and is no test."""

from itertools import pairwise
from pathlib import Path

import pytest

from geotrain.demo import scene
from geotrain.errors import RunError
from geotrain.model import Config
from geotrain.plan import Plan
from geotrain.simulation.prefill.scene import Scene
from geotrain.tokens.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return scene.made_model(tmp_path_factory.mktemp("model") / scene.NAME)


@pytest.fixture(scope="module")
def played(config: Config) -> Scene:
    return scene.made_scene(Plan.load(scene.PLAN), config)


def test_the_plan_idles_about_half_the_time(played: Scene):
    idle = played.bubbles.idle_s.mean() / played.bubbles.step_time_s
    assert 0.5 < idle < 0.55
    assert 1.5 < played.bubbles.step_time_s < 2.5


def test_requests_are_more_than_the_bubbles_hold_and_pause(played: Scene):
    trace, blocks = scene.made_trace(played, 60)
    wanted_s = sum(map(played.work_s, trace.requests)) / (blocks.on_s * blocks.rounds)
    held_s = sum(played.bubbles.idle_s) / played.bubbles.step_time_s
    assert 1.2 < wanted_s / held_s < 1.4
    assert max(one.input_tokens for one in trace.requests) == scene.MOST_TOKENS
    gaps_s = [later.arrival_s - one.arrival_s for one, later in pairwise(trace.requests)]
    assert sum(gap_s > blocks.off_s for gap_s in gaps_s) == blocks.rounds - 1
    assert 50 < blocks.duration_s < 70


def test_the_model_takes_the_longest_prompt_and_a_byte_is_a_token(config: Config, tmp_path: Path):
    assert scene.made_model(tmp_path / "again") == config
    assert config.max_position_embeddings > scene.MOST_TOKENS
    tokenizer = Tokenizer.read(tmp_path / "again" / "tokenizer.json")
    assert len(tokenizer.encode("the open sea")) == 12


def test_without_a_testbed_the_plan_has_no_wan_to_speak_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(_: object) -> None:
        raise RunError("no namespaces")

    monkeypatch.setattr("geotrain.demo.scene.needed_testbed", refused)
    plan, on = scene.possible_plan(tmp_path / "plan.yaml")
    assert on == "local"
    assert plan.cluster.wan.default.rtt_s == pytest.approx(1e-4)
    assert Plan.load(tmp_path / "plan.yaml") == plan
