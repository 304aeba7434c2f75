"""What becomes of bubbles is counted once, whoever tells it."""

import pytest

from geotrain.serving.journal import Journal
from geotrain.serving.messages import Windows
from geotrain.serving.metrics import Metrics
from geotrain.serving.watching import Watch


def told(offered_s: float, used_s: float, overruns: int, guard_s: float) -> Windows:
    return Windows(
        trains=True,
        offered_s=offered_s,
        used_s=used_s,
        wasted_s={"too short": used_s / 2},
        overruns=overruns,
        overrun_s=overruns / 8,
        guard_s=guard_s,
    )


def counted(metrics: Metrics) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in metrics.text().decode().splitlines() if line.startswith("geotrain:"))
    found = {name.removeprefix("geotrain:"): float(value) for name, value in lines}
    keys = {
        "offered": 'bubble_seconds_total{reason="",state="offered"}',
        "used": 'bubble_seconds_total{reason="",state="used"}',
        "wasted": 'bubble_seconds_total{reason="too short",state="wasted"}',
        "overruns": "overruns_total",
        "late": "overrun_seconds_total",
        "guard": "guard_seconds",
    }
    return {key: found[name] for key, name in keys.items()}


@pytest.mark.parametrize("noticed", [True, False], ids=["lost", "replaced at once"])
def test_a_worker_that_was_started_again_counts_from_nothing(noticed: bool):
    metrics = Metrics()
    watch = Watch(metrics, Journal(None))
    watch.watched("east-0", told(10.0, 4.0, 4, 0.5))
    watch.watched("east-1", told(10.0, 0.0, 0, 0.001))
    if noticed:
        watch.gone("east-0")
        watch.watched("east-1", told(10.0, 0.0, 0, 0.001))
        assert counted(metrics)["guard"] == 0.001, "nobody keeps so far away any more"
    watch.watched("east-0", told(12.0, 2.0, 2, 0.002))
    both = {"used": 6.0, "wasted": 3.0, "overruns": 6.0, "late": 0.75} if noticed else {}
    first = {"used": 4.0, "wasted": 2.0, "overruns": 4.0, "late": 0.5}
    assert counted(metrics) == {"offered": 22.0, "guard": 0.002, **first, **both}
