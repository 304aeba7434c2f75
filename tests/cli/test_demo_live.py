"""The parts of `geotrain demo live`; all of it together takes two minutes, and is no test."""

import asyncio
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from geotrain.cli import _demo_scene as scene
from geotrain.cli._demo_load import Answers, send
from geotrain.cli._demo_process import started
from geotrain.errors import RunError
from geotrain.files import read_text
from geotrain.model import Config
from geotrain.plan import Plan
from geotrain.prefill.request import Request
from geotrain.simulation.prefill.scene import Scene
from geotrain.tokens.tokenizer import Tokenizer
from tests.serving.http.toy import MODEL, Toy, served


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return scene.made_model(tmp_path_factory.mktemp("model") / scene.NAME)


@pytest.fixture(scope="module")
def played(config: Config) -> Scene:
    from geotrain.cli._example import LIVE

    return scene.made_scene(Plan.load(LIVE), config)


def sent(url: str, lengths: list[int]) -> Answers:
    """All at once."""
    told: list[int] = []
    requests = [Request(id=number, arrival_s=0.0, input_tokens=length) for number, length in enumerate(lengths)]
    answers = asyncio.run(send(url, MODEL, requests, time.monotonic(), lambda so_far: told.append(so_far.number)))
    assert told == list(range(1, len(lengths) + 1))
    return answers


def test_every_prompt_has_as_many_tokens_as_its_request():
    with served(Toy()) as site:
        answers = sent(f"{site.url}/v1", [1, 30, 7])
        assert sorted(len(prompt.tokens) for prompt in site.engine.prompts) == [1, 7, 30]
    assert (len(answers.ttft_s), answers.rejected, answers.failures) == (3, 0, [])
    assert all(ttft_s > 0 for ttft_s in answers.ttft_s)


def test_who_is_turned_away_is_counted():
    with served(Toy(capacity=0)) as site:
        answers = sent(f"{site.url}/v1", [1, 2])
    assert (answers.ttft_s, answers.rejected, answers.failures) == ([], 2, [])


def test_a_failure_is_no_first_token():
    with served(Toy(fails_at=1)) as site:
        answers = sent(f"{site.url}/v1", [5])
    assert (answers.ttft_s, answers.rejected, len(answers.failures)) == ([], 0, 1)


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

    monkeypatch.setattr("geotrain.training.launch.needed_testbed", refused)
    plan, on = scene.possible_plan(tmp_path / "plan.yaml")
    assert on == "local"
    assert plan.cluster.wan.default.rtt_s == pytest.approx(1e-4)
    assert Plan.load(tmp_path / "plan.yaml") == plan


def test_a_process_lasts_as_long_as_its_block(tmp_path: Path):
    log = tmp_path / "log"
    with started(log, ["wan", "serve", "--insecure", "--port", 0]) as process:
        assert process.until(log, r"(\d+)", 30.0)
        assert process.running
    assert not process.running


def test_a_process_that_fails_has_last_words(tmp_path: Path):
    with (
        pytest.raises(RunError, match=r"geotrain simulate: ended with 2: error: nowhere.yaml: "),
        started(tmp_path / "log", ["simulate", "nowhere.yaml"]) as process,
    ):
        process.until(tmp_path / "never", "(never)", 30.0)
    assert not process.running


def test_a_process_that_is_never_ready_is_an_error(tmp_path: Path):
    with (
        pytest.raises(RunError, match="not ready after 0 s"),
        started(tmp_path / "log", ["wan", "serve", "--insecure", "--port", 0]) as process,
    ):
        process.until(tmp_path / "log", "(never)", 0.0)
    assert not process.running


def test_one_that_is_done_is_waited_for(tmp_path: Path):
    with started(tmp_path / "log", ["--version"]) as process:
        process.finish(30.0)
    assert read_text(tmp_path / "log").startswith("geotrain ")


def test_what_is_missing_is_named_before_anything_starts(geotrain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "openai", None)
    answer = geotrain("demo", "live", "--out", tmp_path)
    assert (answer.exit_code, answer.out) == (2, "")
    assert answer.err == "error: the live demo needs openai: pip install 'geotrain[serve,train]' openai\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seconds", ["0", "nan", "1e9"])
def test_a_time_that_makes_no_sense_is_refused(geotrain, seconds: str):
    answer = geotrain("demo", "live", "--seconds", seconds)
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "--seconds" in answer.err


def test_a_place_that_cannot_be_written_is_refused_first(geotrain, tmp_path: Path):
    (tmp_path / "out").write_text("")
    answer = geotrain("demo", "live", "--out", tmp_path / "out")
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
