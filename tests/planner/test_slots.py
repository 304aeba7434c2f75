"""The cluster as slots: which data centers are near each other does not depend on how much bandwidth there is."""

from itertools import permutations
from pathlib import Path

import pytest

from geotrain.cluster import Cluster
from geotrain.planner.ask import Ask
from geotrain.planner.slots import Slots
from geotrain.planner.space import Space
from geotrain.planner.whatif.variants import with_bandwidth
from geotrain.workload import Job


def make_cluster(number: int, links: list[dict[str, object]]) -> Cluster:
    dcs = [{"name": f"dc{n}", "nodes": 2, "gpu": "h100"} for n in range(number)]
    wan = {"default": {"rtt": "40 ms", "pair_cap": "1 Gbit/s"}, "links": links}
    return Cluster.parse({"datacenters": dcs, "wan": wan}, source=Path("test"))


def make_job() -> Job:
    model = {"layers": 8, "hidden": 2048, "heads": 16, "vocab": 1000}
    return Job.parse({"model": model, "sequence": 2048, "microbatches": 8}, source=Path("test"))


LINKS: list[dict[str, object]] = [
    {"between": ["dc0", "dc1"], "rtt": "5 ms", "pair_cap": "0.2 Gbit/s"},
    {"between": ["dc1", "dc2"], "rtt": "100 ms", "pair_cap": "10 Gbit/s"},
    {"between": ["dc2", "dc3"], "rtt": "10 ms", "pair_cap": "5 Gbit/s"},
    {"between": ["dc0", "dc3"], "rtt": "60 ms", "pair_cap": "2 Gbit/s"},
]


@pytest.mark.parametrize("number", [4, 5])
def test_the_same_layouts_are_tried_at_any_bandwidth(number: int) -> None:
    tried = []
    for share in (0.01, 1.0, 100.0):
        space = Space(with_bandwidth(make_cluster(number, LINKS), share), make_job(), Ask(stages=8))
        tried.append({layout for group in space.groups() for layout in space.layouts(group)})
    assert tried[0] == tried[1] == tried[2]


def test_links_that_are_all_the_same_are_measured_once() -> None:
    assert len(Slots(make_cluster(5, []), make_job(), 1).measures) == 1


def test_links_that_differ_in_latency_only_are_measured_by_it() -> None:
    cluster = make_cluster(4, [{"between": ["dc0", "dc3"], "rtt": "1 ms"}])
    (measure,) = Slots(cluster, make_job(), 1).measures
    assert min(permutations(range(4), 2), key=lambda ends: measure(*ends)) == (0, 3)
