"""What cannot be trained is said in one sentence, before any waiting."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.training.plans import plan


def refused(tmp_path: Path, *words: str, environment: dict[str, str] | None = None, **choices: object) -> str:
    """The sentence with which `geotrain train` refuses."""
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(plan(["east", "south"], **choices).dump()))  # type: ignore[arg-type]
    command = [sys.executable, "-m", "geotrain", "train", str(file), "--out", str(tmp_path / "run"), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=50, env={**os.environ, **(environment or {})}
    )
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_keys_or_insecure(tmp_path: Path):
    assert "give either --keys DIR" in refused(tmp_path, "--dc", "east")


def test_data_is_needed_and_must_be_there(tmp_path: Path):
    assert "needs a data set: --data DIR" in refused(tmp_path, "--dc", "east", "--insecure")
    world = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    words = ("--dc", "east", "--insecure", "--data", str(tmp_path / "nothing"))
    sentence = refused(tmp_path, *words, environment=world)
    assert "nothing" in sentence and "tokens.json" in sentence


def test_a_world_that_is_not_the_plans(tmp_path: Path):
    world = {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}
    words = ("--insecure", "--data", str(tmp_path))
    assert "'east' was started with 3 processes, and the plan needs 1 there" in refused(
        tmp_path, "--dc", "east", *words, environment=world
    )
    assert "'north' has no part in this plan, only east, south have" in refused(tmp_path, "--dc", "north", *words)


def test_what_can_be_simulated_but_not_run(tmp_path: Path):
    words = ("--dc", "east", "--insecure", "--data", str(tmp_path))
    assert "recompute is 'layerwise'" in refused(tmp_path, *words, job={"recompute": "layerwise"})


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (("--control", "nowhere"), "--control is 'nowhere' and must be HOST:PORT"),
        (("--record", "9-3"), "--record is '9-3' and must be two steps such as 10-19"),
        (("--steps", "0"), "steps: 0 must be at least 1"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, option: tuple[str, ...], sentence: str):
    assert sentence in refused(tmp_path, "--dc", "east", "--insecure", "--data", str(tmp_path), *option)
