"""What cannot be trained is said in one sentence, before any waiting."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.data import VOCAB, dataset
from tests.training.plans import MODEL, plan

Refused = Callable[..., str]
WORLD = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}


def written(directory: Path, **choices: object) -> Path:
    """A plan for two data centers."""
    file = directory / "plan.yaml"
    file.write_text(yaml.safe_dump(plan(["east", "south"], **choices).dump()))  # type: ignore[arg-type]
    return file


@pytest.fixture
def refused(geotrain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Refused:
    """The sentence with which `geotrain train` refuses."""
    monkeypatch.setattr("os._exit", sys.exit)

    def refuse(*words: str, world_size: int | None = None, **choices: object) -> str:
        for name, value in () if world_size is None else {**WORLD, "WORLD_SIZE": str(world_size)}.items():
            monkeypatch.setenv(name, value)
        answer = geotrain("train", written(tmp_path, **choices), "--out", tmp_path / "run", *words)
        assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
        return str(answer.err)

    return refuse


def test_keys_or_insecure(refused: Refused):
    assert "give either --keys DIR" in refused("--dc", "east")


def test_data_is_needed(refused: Refused):
    assert "needs a data set: --data DIR" in refused("--dc", "east", "--insecure")


def test_data_must_be_there(tmp_path: Path):
    words = ["--dc", "east", "--insecure", "--data", str(tmp_path / "nothing"), "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-m", "geotrain", "train", str(written(tmp_path)), *words],
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, **WORLD, "WORLD_SIZE": "1"},
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "nothing" in done.stderr and "tokens.json" in done.stderr


def test_a_world_that_is_not_the_plans(refused: Refused, tmp_path: Path):
    words = ("--insecure", "--data", str(tmp_path))
    assert "'north' has no part in this plan, only east, south have" in refused("--dc", "north", *words)
    assert "'east' was started with 3 processes, and the plan needs 1 there" in refused(
        "--dc", "east", *words, world_size=3
    )


def test_what_can_be_simulated_but_not_run(refused: Refused, tmp_path: Path):
    words = ("--dc", "east", "--insecure", "--data", str(tmp_path))
    assert "recompute is 'layerwise'" in refused(*words, job={"recompute": "layerwise"})


def test_a_dry_run_refuses_or_says_that_it_can_be_trained(refused: Refused, geotrain, tmp_path: Path):
    words: tuple[str, ...] = ("--dc", "east", "--insecure", "--dry-run")
    assert "needs a data set" in refused(*words)
    assert "'north' has no part in this plan" in refused("--dc", "north", *words[2:], "--compute", "emulated")
    trainable = {"job": {"model": MODEL | {"layers": 2, "vocab": VOCAB}}}
    words += ("--data", str(dataset(tmp_path)))
    assert "recompute is 'selective'" in refused(*words, job=trainable["job"] | {"recompute": "selective"})
    assert "has neither model.safetensors" in refused(*words, "--start", str(tmp_path), **trainable)
    answer = geotrain("train", written(tmp_path, **trainable), "--out", tmp_path / "run", *words)
    assert (answer.exit_code, answer.out) == (0, f"{tmp_path / 'plan.yaml'}: can be trained\n")
    assert geotrain("train", tmp_path / "plan.yaml", "--out", tmp_path / "run", *words, "--json").json == {
        "dry_run": True
    }
    assert not (tmp_path / "run").exists()


def test_a_dry_run_looks_at_what_is_saved(refused: Refused, geotrain, tmp_path: Path):
    def small(**model: int) -> dict[str, Any]:
        return {"job": {"model": MODEL | {"layers": 2, "vocab": VOCAB} | model}}

    words: tuple[str, ...] = ("--dc", "east", "--insecure", "--data", str(dataset(tmp_path)), "--steps", "1")
    file = tmp_path / "alone.yaml"
    file.write_text(yaml.safe_dump(plan(["east"], layers=2, **small()).dump()))
    assert geotrain("train", file, "--out", tmp_path / "run", *words).exit_code == 0
    words += ("--dry-run",)
    assert geotrain("train", written(tmp_path, **small()), "--out", tmp_path / "run", *words).exit_code == 0
    assert "has checkpoints already" in refused(*words, "--no-resume", **small())
    assert "is a checkpoint of another model: intermediate_size" in refused(*words, **small(ffn=48))
    assert "was trained on other data or with another seed" in refused(*words, "--seed", "3", **small())
    other = small()["job"] | {"microbatches": 3}
    assert "the global batch must stay the same" in refused(*words, job=other)
    start = ("--start", str(tmp_path / "run" / "model"))
    assert "has the shape [64, 32] and must have [48, 32]" in refused(*words, *start, **small(ffn=48))


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (("--control", "nowhere"), "--control is 'nowhere' and must be HOST:PORT"),
        (("--record", "9-3"), "--record is '9-3' and must be two steps such as 10-19"),
        (("--steps", "0"), "steps: 0 must be at least 1"),
    ],
)
def test_options_that_make_no_sense(refused: Refused, tmp_path: Path, option: tuple[str, ...], sentence: str):
    assert sentence in refused("--dc", "east", "--insecure", "--data", str(tmp_path), *option)
