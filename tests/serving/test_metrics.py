"""The metrics, and the dashboard that shows them."""

import json
import re
from pathlib import Path

import geotrain
from geotrain.serving.metrics import Metrics

DASHBOARD = Path(geotrain.__file__).parent.parent / "docs" / "grafana.json"


def filled() -> Metrics:
    """Everything was told once."""
    metrics = Metrics()
    metrics.responded("/health", 200)
    metrics.refused("too_many_connections")
    metrics.observe_ttft("m", 0.1)
    metrics.observe_gap("m", 0.01)
    metrics.finished("m", "stop", e2e_s=1.0, prompt_tokens=5, answer_tokens=3)
    metrics.rejected("m", "busy")
    metrics.set_load("m", running=2, waiting=1)
    metrics.observe_queue("m", 0.05)
    metrics.observe_prefill("m", 0.05)
    metrics.observe_decode("m", 0.9)
    metrics.observe_wait_for_bubble(0.02)
    metrics.add_bubble("wasted", 0.5, reason="guard")
    metrics.add_overruns(1, 0.001)
    metrics.set_guard(0.002)
    metrics.observe_step(1.5)
    metrics.set_step_change(0.004)
    metrics.observe_admission("m", 0.003)
    return metrics


def test_names_and_values():
    text = filled().text().decode()
    for line in (
        'vllm:time_to_first_token_seconds_sum{model_name="m"} 0.1',
        'vllm:e2e_request_latency_seconds_count{model_name="m"} 1.0',
        'vllm:request_success_total{finished_reason="stop",model_name="m"} 1.0',
        'vllm:num_requests_running{model_name="m"} 2.0',
        'vllm:num_requests_waiting{model_name="m"} 1.0',
        'vllm:prompt_tokens_total{model_name="m"} 5.0',
        'vllm:generation_tokens_total{model_name="m"} 3.0',
        'geotrain:http_refusals_total{reason="too_many_connections"} 1.0',
        'geotrain:bubble_seconds_total{reason="guard",state="wasted"} 0.5',
        "geotrain:overruns_total 1.0",
        "geotrain:guard_seconds 0.002",
        "geotrain:wait_for_bubble_seconds_sum 0.02",
        "geotrain:training_step_seconds_sum 1.5",
        "geotrain:training_step_change 0.004",
        'geotrain:admission_seconds_sum{model_name="m"} 0.003',
    ):
        assert line in text.splitlines()


def test_an_answer_that_was_not_finished_is_no_latency():
    metrics = Metrics()
    metrics.finished("m", "abort", e2e_s=9.0, prompt_tokens=5, answer_tokens=1)
    text = metrics.text().decode()
    assert 'finished_reason="abort"' in text and "e2e_request_latency_seconds_count{" not in text


def test_services_do_not_share_metrics():
    first, second = Metrics(), Metrics()
    first.add_overruns(1, 0.001)
    assert b"geotrain:overruns_total 0.0" in second.text()


def test_the_dashboard_shows_every_metric_and_no_other():
    real = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names(filled().text().decode())}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = " ".join(target["expr"] for panel in panels for target in panel.get("targets", []))
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"(?:vllm|geotrain):\w+", asked)}
    assert shown == real


def names(text: str) -> set[str]:
    samples = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    return {name for name in samples if not name.endswith("_created")}
