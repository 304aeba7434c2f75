"""Measured figures carry every repetition, and stand beside the simulated one."""

import json
import subprocess

import pytest

from geotrain.errors import RunError
from geotrain.reproduction import load
from geotrain.reproduction.testbed import live_prefill, scaled_plan, steps, transfers
from geotrain.simulation import simulate
from tests.testbed.machine import require_namespaces

pytestmark = pytest.mark.slow


@pytest.mark.timeout(120)
def test_a_transfer_is_measured_on_one_connection_and_on_many():
    require_namespaces()
    found = list(
        transfers(rtts_ms=[10], links={"500 Mbit/s": {"tcp_window": "146.5 kB", "size_mb": 2.0}}, repetitions=2)
    )
    assert [(one.row["connections"], one.figure) for one in found] == [
        ("one", "rate"), ("one", "measured over simulated"), ("many", "rate"), ("many", "measured over simulated"),
    ]  # fmt: skip
    assert [len(one.samples) for one in found] == [2, 2, 2, 2]
    # The machine may be busy: a transfer can take longer than simulated, but hardly less.
    assert found[1].value > 0.9


@pytest.mark.timeout(120)
def test_a_real_run_stands_beside_its_simulation():
    require_namespaces()
    pytest.importorskip("torch")
    found = list(steps(schedules=["1f1b"], rtts_ms=[10], repetitions=1, microbatches=2, forward_s=0.02))
    simulated, measured, over, error = found
    assert [one.figure for one in found] == ["simulated step", "measured step", "measured over simulated", "error"]
    assert over.value == pytest.approx(measured.value / simulated.value)
    assert error.value == pytest.approx(abs(over.value - 1))
    assert over.value > 0.9


def test_every_schedule_of_the_experiment_fits_the_scaled_plan():
    for schedule in load("training-testbed").inputs["schedules"]:
        assert simulate(scaled_plan(schedule, 40, microbatches=4, forward_s=0.08)).step_time_s > 0


def answers(monkeypatch: pytest.MonkeyPatch, code: int, out: str, err: str) -> None:
    done = subprocess.CompletedProcess([], code, out, err)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)


def side(after: float | None) -> dict[str, object]:
    return {"gpu_utilization_after": after, "ttft_s": {"p50": 0.1}}


def test_the_live_run_stands_beside_its_simulation(monkeypatch):
    answers(monkeypatch, 0, json.dumps({"measured": side(0.8), "simulated": side(1.0)}), "")
    found = list(live_prefill(repetitions=2, seconds=10))
    assert found[-1].samples == (0.8, 0.8)
    assert found[0].sources[0].command == (
        "geotrain demo live --seconds 10 --json | jq .simulated.gpu_utilization_after"
    )


def test_a_live_run_that_fails_says_why(monkeypatch):
    answers(monkeypatch, 1, "", "5 s  training starts\nerror: no memory left\n")
    with pytest.raises(RunError, match="geotrain demo live failed: error: no memory left"):
        list(live_prefill(repetitions=1, seconds=10))


def test_a_live_run_without_a_figure_says_so(monkeypatch):
    answers(monkeypatch, 0, json.dumps({"measured": side(None), "simulated": side(1.0)}), "")
    with pytest.raises(RunError, match="found no measured gpu_utilization_after: the machine may be too busy"):
        list(live_prefill(repetitions=1, seconds=10))
