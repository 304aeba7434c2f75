import math
from pathlib import Path as File
from typing import Any

import pytest

from geotrain.cluster import Cluster, Datacenter, Link
from geotrain.network import Path, Ring, connections_for, pair_rate, path_between, ring_all_reduce_s
from geotrain.network.path import CHUNK_BYTES
from geotrain.plan import Plan
from geotrain.units import format_rate

WINDOW = 1.465e6
MB = 1e6
GBIT = 1e9 / 8
FABRIC = {"rate": "100 Gbit/s", "latency": "10 us"}


def make_plan(
    *,
    links: list[dict[str, Any]] | None = None,
    fabrics: tuple[dict[str, str] | None, dict[str, str] | None] = (None, None),
    connections: int | str = "auto",
    pipelines: int = 1,
    **default: str,
) -> Plan:
    """Stages 0 and 1 in the east, stage 2 in the west."""
    datacenters = [
        {"name": name, "nodes": 16, "gpu": "h100", "fabric": fabric}
        for name, fabric in zip(("east", "west"), fabrics, strict=True)
    ]
    content = {
        "cluster": {"datacenters": datacenters, "wan": {"default": default, "links": links or []}},
        "job": {"model": {"name": "gpt-a", "layers": 3}, "microbatches": 1},
        "stages": [{"dc": dc, "layers": 1} for dc in ("east", "east", "west")],
        "pipelines_per_cell": pipelines,
        "wan": {"connections": connections},
    }
    return Plan.parse(content, source=File("plan.yaml"))


def over_the_wan(plan: Plan, *, pooled: bool = False, size_bytes: float = 33.5 * MB) -> Path:
    return path_between(plan, 1, 2, pooled=pooled, size_bytes=size_bytes)


@pytest.mark.parametrize(
    ("rtt_ms", "rate", "needed"),
    [
        pytest.param(10, "1.172 Gbit/s", 5, id="10ms"),
        pytest.param(20, "586 Mbit/s", 9, id="20ms"),
        pytest.param(30, "390.7 Mbit/s", 13, id="30ms"),
        pytest.param(40, "293 Mbit/s", 18, id="40ms"),
    ],
)
def test_a_connection_moves_its_window_each_round_trip_and_enough_of_them_fill_the_pair(
    rtt_ms: int, rate: str, needed: int
):
    link = Link(rtt_s=rtt_ms / 1000, pair_cap=5 * GBIT, tcp_window_bytes=WINDOW)
    assert pair_rate(link, 1) == WINDOW / (rtt_ms / 1000)
    assert format_rate(pair_rate(link, 1)) == rate
    assert connections_for(link) == needed == math.ceil(5 * GBIT * rtt_ms / 1000 / WINDOW)
    assert pair_rate(link, needed) == 5 * GBIT > pair_rate(link, needed - 1)


@pytest.mark.parametrize(
    ("link", "connections"),
    [
        pytest.param(Link(), 1, id="no-limits"),
        pytest.param(Link(rtt_s=0.04, tcp_window_bytes=WINDOW), 1, id="no-cap-to-reach"),
        pytest.param(Link(rtt_s=0.04, pair_cap=5 * GBIT), 1, id="no-window"),
        pytest.param(Link(rtt_s=0.0, pair_cap=5 * GBIT, tcp_window_bytes=WINDOW), 1, id="no-distance"),
        pytest.param(Link(rtt_s=0.001, pair_cap=5 * GBIT, tcp_window_bytes=WINDOW), 1, id="near"),
        pytest.param(Link(rtt_s=0.07, pair_cap=70 * MB, tcp_window_bytes=0.7 * MB), 7, id="exact-but-for-rounding"),
        pytest.param(Link(rtt_s=0.04, capacity=1 * GBIT, tcp_window_bytes=WINDOW), 4, id="capacity-only"),
        pytest.param(
            Link(rtt_s=0.04, pair_cap=5 * GBIT, capacity=1 * GBIT, tcp_window_bytes=WINDOW), 4, id="capacity-below-cap"
        ),
    ],
)
def test_auto_opens_the_fewest_connections_that_reach_the_limit(link: Link, connections: int):
    assert connections_for(link) == connections


@pytest.mark.parametrize(
    ("connections", "rate", "opened"),
    [
        pytest.param(1, WINDOW / 0.04, 1, id="one"),
        pytest.param(4, 4 * WINDOW / 0.04, 4, id="four"),
        pytest.param(64, 5 * GBIT, 64, id="more-than-help"),
        pytest.param("auto", 5 * GBIT, 18, id="auto"),
    ],
)
def test_a_pair_has_the_rate_of_its_connections_up_to_its_cap(connections: int | str, rate: float, opened: int):
    plan = make_plan(rtt="40 ms", pair_cap="5 Gbit/s", tcp_window="1.465 MB", connections=connections)
    assert over_the_wan(plan) == Path(
        crosses_wan=True, rate=rate, latency_s=0.02, pairs=1, connections=opened
    )  # fmt: skip


def test_without_a_cap_auto_is_unlimited_and_one_connection_has_its_window():
    rates = [over_the_wan(make_plan(rtt="40 ms", tcp_window="1 MB", connections=c)).rate for c in ("auto", 1)]
    assert rates == [math.inf, 25 * MB]


def test_a_transfer_holds_its_channel_for_its_bytes_and_arrives_half_a_round_trip_later():
    path = over_the_wan(make_plan(rtt="40 ms", pair_cap="5 Gbit/s"))
    assert (path.occupancy_s(62.5 * MB), path.latency_s, path.is_instant) == (0.1, 0.02, False)


@pytest.mark.parametrize("one_way_first", [True, False], ids=["one-way-first", "one-way-last"])
def test_a_link_may_differ_by_direction_in_any_order_of_lines(one_way_first: bool):
    links: list[dict[str, Any]] = [
        {"from": "west", "to": "east", "pair_cap": "1 Gbit/s"},
        {"between": ["west", "east"], "pair_cap": "2 Gbit/s", "rtt": "20 ms"},
    ]
    plan = make_plan(links=links if one_way_first else links[::-1], rtt="40 ms", pair_cap="5 Gbit/s")
    there, back = (path_between(plan, *ends, pooled=False, size_bytes=MB) for ends in ((1, 2), (2, 1)))
    assert there == Path(crosses_wan=True, rate=2 * GBIT, latency_s=0.01, pairs=1, connections=1)
    assert back == Path(crosses_wan=True, rate=1 * GBIT, latency_s=0.01, pairs=1, connections=1)


@pytest.mark.parametrize("pooled", [False, True], ids=["own", "pooled"])
def test_inside_a_data_center_the_fabric_carries_and_without_one_nothing_waits(pooled: bool):
    def inside(plan: Plan) -> Path:
        return path_between(plan, 0, 1, pooled=pooled, size_bytes=MB)

    wired = inside(make_plan(fabrics=(FABRIC, None), pipelines=3, rtt="40 ms"))
    assert wired == Path(crosses_wan=False, rate=100 * GBIT, latency_s=10e-6, pairs=1, connections=1)
    unlimited = inside(make_plan(pipelines=3, rtt="40 ms"))
    assert unlimited == Path(crosses_wan=False, rate=math.inf, latency_s=0.0, pairs=1, connections=1)
    assert (wired.is_instant, unlimited.is_instant) == (False, True)


def pooled_path(pipelines: int, fabrics: Any, *, size_bytes: float = 33.5 * MB) -> Path:
    plan = make_plan(fabrics=fabrics, pipelines=pipelines, rtt="40 ms", pair_cap="5 Gbit/s", tcp_window="1.465 MB")
    return over_the_wan(plan, pooled=True, size_bytes=size_bytes)


def test_a_cell_of_one_pools_nothing():
    plan = make_plan(fabrics=(FABRIC, FABRIC), rtt="40 ms", pair_cap="5 Gbit/s")
    assert over_the_wan(plan, pooled=True) == over_the_wan(plan, pooled=False)


def test_pooled_pairs_add_up_and_without_a_fabric_limit_cost_nothing():
    assert pooled_path(3, (None, None)) == Path(
        crosses_wan=True, rate=3 * 5 * GBIT, latency_s=0.02, pairs=3, connections=18
    )


@pytest.mark.parametrize(
    ("size_bytes", "chunk"),
    [pytest.param(33.5 * MB, CHUNK_BYTES, id="many-chunks"), pytest.param(1 * MB, 1 * MB, id="less-than-a-chunk")],
)
def test_pooling_adds_the_scatter_of_the_first_chunk_and_the_gather_of_the_last(size_bytes: float, chunk: float):
    path = pooled_path(3, (FABRIC, FABRIC), size_bytes=size_bytes)
    one_side = 10e-6 + 2 / 3 * chunk / (100 * GBIT)
    assert path.rate == 3 * 5 * GBIT
    assert path.latency_s == pytest.approx(0.02 + 2 * one_side, rel=1e-12)


@pytest.mark.parametrize("slow_side", [0, 1], ids=["sender", "receiver"])
def test_pooled_pairs_are_held_back_by_the_slower_fabric(slow_side: int):
    """A fabric moves all but one of the K shards, so it bears K/(K-1) of its rate."""
    fabrics: list[dict[str, str] | None] = [None, None]
    fabrics[slow_side] = {"rate": "9 Gbit/s"}
    path = pooled_path(4, tuple(fabrics))
    assert path.rate == pytest.approx(12 * GBIT)
    assert path.latency_s == pytest.approx(0.02 + 3 / 4 * CHUNK_BYTES / (9 * GBIT))


@pytest.mark.parametrize(
    ("participants", "fabric", "seconds"),
    [
        pytest.param(1, FABRIC, 0.0, id="alone"),
        pytest.param(2, FABRIC, 0.08, id="two"),
        pytest.param(4, FABRIC, 0.12, id="four"),
        pytest.param(4, None, 0.0, id="no-fabric-limit"),
    ],
)
def test_a_ring_moves_twice_all_but_one_part(participants: int, fabric: dict[str, str] | None, seconds: float):
    content = {"datacenters": [{"name": "dc", "nodes": 4, "gpu": "h100", "fabric": fabric}]}
    dc: Datacenter = Cluster.parse(content, source=File("cluster.yaml")).datacenter("dc")
    assert ring_all_reduce_s(participants, 1000 * MB, dc) == pytest.approx(seconds)


def make_ring(copies: tuple[int, ...], *, capacity: float | None = None, stages: int = 1, gpus: int = 1) -> Ring:
    """Data centers in a ring of 1 GB/s pairs at 20 ms one way, 10 GB/s inside."""
    link = Link.model_validate({"rtt": 0.04, "pair_cap": 1e9, "capacity": capacity})
    dc = Datacenter.model_validate(
        {"name": "a", "nodes": 99, "gpus_per_node": gpus, "gpu": "h100", "fabric": {"rate": 10e9}}
    )
    return Ring(
        groups=[(dc, n) for n in copies],
        links=[link] * len(copies),
        stages=stages,
        tensor_parallel=1,
        connections="auto",
    )


@pytest.mark.parametrize(
    ("ring", "seconds"),
    [
        # Each of four pairs sends its quarter there and back, in two rounds of one hop each.
        pytest.param(make_ring((4, 4)), 1.0 / 4 + 2 * 0.02, id="two"),
        # The smaller side has two nodes; the others of the larger one have nobody to talk to.
        pytest.param(make_ring((4, 2)), 1.0 / 2 + 2 * 0.02, id="uneven"),
        pytest.param(make_ring((4, 4, 4)), 4 / 3 / 4 + 4 * 0.02, id="three"),
        pytest.param(make_ring((4, 4), capacity=2e9), 1.0 / 2 + 2 * 0.02, id="capacity"),
        pytest.param(make_ring((4, 4), capacity=2e9, stages=2), 1.0 + 2 * 0.02, id="shared"),
        # Copies on the same two nodes share their pair: all four; or two, on each of two pairs, of either stage.
        pytest.param(make_ring((4, 4), gpus=4), 1.0 + 2 * 0.02, id="one-node"),
        pytest.param(make_ring((4, 4), gpus=2, stages=2), 1.0 / 2 + 2 * 0.02, id="two-nodes-per-stage"),
    ],
)
def test_gradients_of_a_gigabyte_around_a_ring(ring: Ring, seconds: float):
    assert ring.across_s(1e9) == pytest.approx(seconds)


def test_the_ring_starts_while_backward_still_makes_gradients():
    ring = make_ring((4, 4))
    across, inside = 0.29, 2 * 3 / 4 * 0.1
    assert ring.all_reduce_s(1e9, 1, 10.0) == pytest.approx(across + inside)
    assert ring.all_reduce_s(1e9, 10, 0.1) == pytest.approx(across + inside - 0.09)
    assert ring.all_reduce_s(1e9, 10, 99.0) == pytest.approx(across / 10 + inside)
