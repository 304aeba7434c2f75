"""From text to text, as a user does it: tokens, 200 steps over two data centers, a model that writes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.testbed.machine import require_namespaces
from tests.training.plans import plan

pytestmark = pytest.mark.slow


STEPS = 200


def geotrain(*words: str | Path) -> str:
    """What a command says; it must succeed."""
    done = subprocess.run([sys.executable, "-m", "geotrain", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(200)
def test_a_model_learns_python_over_two_data_centers_and_writes_some(tmp_path: Path):
    require_namespaces()
    model = {"layers": 2, "hidden": 96, "heads": 4, "kv_heads": 2, "ffn": 256, "vocab": 1000, "activation": "swiglu"}
    job = {"model": model, "sequence": 64, "microbatch": 4, "microbatches": 4}
    decided = plan(["east", "south"], schedule="atlas", job=job, link={"rtt": "20 ms"})
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(decided.dump()))

    geotrain("data", "--stdlib", "--train-bpe", "1000", "--out", tmp_path / "data")
    run = tmp_path / "run"
    geotrain(
        *("launch", tmp_path / "plan.yaml", "--on", "testbed", "--data", tmp_path / "data", "--out", run),
        *("--max-restarts", "0", "--", "--steps", str(STEPS), "--learning-rate", "0.005"),
    )

    losses = [json.loads(line)["loss"] for line in (run / "log.jsonl").read_text().splitlines()]
    assert len(losses) == STEPS
    first, last = sum(losses[:10]) / 10, sum(losses[-10:]) / 10
    assert first > 6.0 and last < 4.5, f"the loss went from {first:.2f} to {last:.2f}"

    wrote = json.loads(geotrain("generate", run, "def __init__(self", "--max-tokens", "40", "--json"))
    text = wrote["text"]
    assert len(text.split()) > 3
    assert any(word in text for word in ("self", "return", "def", "if", "import", "=")), text

    compared = json.loads(geotrain("compare-runs", tmp_path / "plan.yaml", run, "--json"))
    assert compared["step_time_s"]["measured"] > compared["step_time_s"]["simulated"] > 0
