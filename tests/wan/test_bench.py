"""Transfers on a small testbed."""

from contextlib import nullcontext

import pytest

from geotrain.errors import InputError
from geotrain.wan.bench import Benchmark
from tests.testbed.clusters import cluster
from tests.testbed.machine import require_namespaces

pytestmark = pytest.mark.slow


def benchmark(source: str = "east", target: str = "south", **link) -> Benchmark:
    made = cluster("east", "south", "west", fabric={"rate": "4 Gbit/s"}, **link)
    return Benchmark(made, source, target, size_bytes=1_000_000, count=3, pairs=2, tell=lambda _: None)


def test_the_prediction_is_the_simulators():
    bench = benchmark(rtt="20 ms", pair_cap=40e6, tcp_window=200e3)
    assert bench.predicted_s(1) == pytest.approx(1e6 / 10e6 + 0.01)
    assert bench.predicted_s(9) == pytest.approx(1e6 / 40e6 + 0.01)
    assert bench.predicted_s(9, pairs=2) == pytest.approx(1e6 / 80e6 + 0.01 + 2 * 0.5 * 1e6 / 500e6)
    assert [dc.name for dc in bench.cluster.datacenters] == ["east", "south"]


class Node:
    """A node whose tuner has settled on three connections, and whose transfers take no time."""

    def tell(self, *_, **__):
        pass

    def ask(self, what, **_):
        return {"connections": 3, "cpu_s": 0.0} if what == "count" else 0.0

    def answer(self, **_):
        return 0.0


def test_many_connections_stand_beside_what_auto_is_simulated_with_not_what_the_tuner_found(monkeypatch):
    bench = benchmark(rtt="20 ms", pair_cap=40e6, tcp_window=200e3)
    monkeypatch.setattr(bench, "_joined", lambda *_: nullcontext((Node(), Node())))
    many = bench.own(bench.testbed(), "n connections", "auto")
    assert (many.connections, many.predicted_s) == (3, bench.predicted_s(4))
    assert bench.predicted_s(4) < bench.predicted_s(3)


def test_all_ways_are_measured_or_say_why_not():
    require_namespaces()
    found = benchmark(rtt="20 ms", pair_cap=40e6, tcp_window=200e3).run()
    one, many, pooled, gloo = found.rows
    # The machine may be busy: a transfer can take longer than predicted, but never less.
    for row in (one, many, pooled):
        assert (row.missing, len(row.times_s)) == ("", 3)
        assert row.time_s > 0.9 * row.predicted_s
    assert one.connections == 1 and many.connections >= 1 and pooled.pairs == 2
    assert gloo.times_s or gloo.missing == "torch is not installed"


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(InputError, match="must name two data centers"):
        benchmark("east", "east")
    with pytest.raises(InputError, match="the unknown data center 'nort'"):
        benchmark("east", "nort")
