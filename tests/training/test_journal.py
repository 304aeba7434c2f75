"""A run can be watched: lines in a file, metrics over HTTP, TensorBoard; and a full disk does not stop it."""

import json
import urllib.request
from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.training.journal import Journal
from geotrain.training.options import Options
from geotrain.training.report import StepReport
from tests.ports import free_port


def report(step: int, *, wan_bytes: int = 0) -> StepReport:
    """Of a step of half a second."""
    return StepReport(
        step=step,
        loss=5.0 - step,
        norm=1.5,
        rate=1e-3,
        step_time_s=0.5,
        tokens=1000,
        utilization=0.75,
        wan_bytes=wan_bytes,
    )


def options(out: Path, **told: object) -> Options:
    return Options(dc="east", out=out, compute="emulated", steps=2, **told)  # type: ignore[arg-type]


def test_every_step_is_a_line_with_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    journal = Journal(options(tmp_path / "run"))
    journal.report(report(0, wan_bytes=100))
    journal.report(report(1, wan_bytes=400))
    journal.close()
    first, second = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text().splitlines())
    assert (first["step"], first["loss"]) == (0, 5.0)
    assert second["tokens_per_s"] == 2000 and second["bubble_share"] == 0.25
    assert second["wan_bytes"] == 300 and second["wan_bytes_per_s"] == 600
    assert "step 2/2 · loss 4.0000 · 0.500 s · 2,000 tokens/s · busy 75%" in capsys.readouterr().out


def test_prometheus_can_scrape_the_last_step(tmp_path: Path):
    port = free_port()
    journal = Journal(options(tmp_path, metrics_port=port), quiet=True)
    journal.report(report(1))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert "geotrain_train_loss 4.0" in text
    assert "geotrain_train_utilization 0.75" in text
    with pytest.raises(InputError, match=f"--metrics-port is {port}: Address already in use"):
        Journal(options(tmp_path, metrics_port=port))
    journal.close()


def test_tensorboard_gets_a_file(tmp_path: Path):
    journal = Journal(options(tmp_path, tensorboard=True), quiet=True)
    journal.report(report(0))
    journal.close()
    assert any((tmp_path / "tensorboard").glob("events*"))


def test_a_log_on_a_full_disk_is_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "log.jsonl").symlink_to(full)
    journal = Journal(options(tmp_path), quiet=True)
    journal.report(report(0))
    journal.report(report(1))
    journal.close()
    assert capsys.readouterr().err.count("cannot be written: No space left on device; training goes on") == 1


def test_the_first_step_has_sent_bytes_too(tmp_path: Path):
    journal = Journal(options(tmp_path / "run"), quiet=True)
    journal.report(report(0, wan_bytes=100))
    journal.close()
    assert journal.last is not None
    assert (journal.last["wan_bytes"], journal.last["wan_bytes_per_s"]) == (100, 200)
