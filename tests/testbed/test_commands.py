"""The commands of both kinds of WAN, as they would be run."""

from typing import Any

import pytest

from geotrain.testbed import draw
from geotrain.testbed.blueprint import FabricSpec, Space
from geotrain.testbed.plumbing import Step, fabric_steps, shape_lines, sysctls
from geotrain.testbed.wan import cut_step, netem_steps, tun_steps
from tests.testbed.clusters import cluster

LINK: dict[str, Any] = {"rtt": "40 ms", "pair_cap": "5 Gbit/s", "tcp_window": "1 MB", "capacity": "8 Gbit/s"}


def path(space: Space) -> str:
    return f"/ns/{space.dc}{'' if space.node is None else space.node}"


def by_space(steps: list[Step]) -> dict[tuple[Space, str], list[str]]:
    lines: dict[tuple[Space, str], list[str]] = {}
    for step in steps:
        lines.setdefault((step.space, step.tool), []).extend(step.lines)
    return lines


def test_netem_delays_limits_and_loses_between_every_two_nodes():
    blueprint = draw(cluster(**LINK), nodes_per_dc=2)
    ways = tuple(way.model_copy(update={"loss": 0.01}) for way in blueprint.ways)
    lines = by_space(list(netem_steps(blueprint.model_copy(update={"ways": ways}), path)))
    assert lines[Space("east", 0), "tc"] == [
        "qdisc add dev wan root handle 1: htb",
        "class add dev wan parent 1: classid 1:2 htb rate 625000000bps ceil 625000000bps"
        " burst 262144 cburst 262144 quantum 65536",
        "qdisc add dev wan parent 1:2 handle 2: netem delay 0.020000s loss random 1.000000% limit 5167",
        "filter add dev wan parent 1: protocol ip u32 match ip dst 10.2.0.1/32 flowid 1:2",
        "class add dev wan parent 1: classid 1:3 htb rate 625000000bps ceil 625000000bps"
        " burst 262144 cburst 262144 quantum 65536",
        "qdisc add dev wan parent 1:3 handle 3: netem delay 0.020000s loss random 1.000000% limit 5167",
        "filter add dev wan parent 1: protocol ip u32 match ip dst 10.2.0.2/32 flowid 1:3",
    ]
    assert lines[Space("east", 0), "ip"] == [
        "link set wan gso_max_segs 1",
        "link set wan up",
        "route add 10.2.0.0/16 window 1000000 via 169.254.1.1 dev wan onlink src 10.1.0.1",
    ]


def test_netem_limits_the_capacity_between_the_gates():
    lines = by_space(list(netem_steps(draw(cluster(**LINK), nodes_per_dc=1), path)))
    assert lines[Space("east"), "tc"] == ["qdisc add dev to1 root tbf rate 1000000000bps burst 500000 limit 10500000"]
    assert lines[Space("east"), "ip"] == [
        "link set lo up",
        "addr add 169.254.1.1/32 dev lo",
        "link add w0 mtu 9000 type veth peer name wan mtu 9000 netns /ns/east0",
        "link set w0 up",
        "route add 10.1.0.1/32 dev w0",
        "link add to1 mtu 9000 type veth peer name to0 mtu 9000 netns /ns/south",
        "link set to1 up",
        "route add 10.2.0.0/16 via 169.254.1.2 dev to1 onlink",
    ]
    assert lines[Space("south"), "ip"][-2:] == [
        "link set to0 up",
        "route add 10.1.0.0/16 via 169.254.1.1 dev to0 onlink",
    ]


def test_netem_is_cut_by_a_route_that_leads_nowhere():
    blueprint = draw(cluster(**LINK))
    assert cut_step(blueprint, "east", "south", cut=True) == Step(
        Space("east"), "ip", ("route replace blackhole 10.2.0.0/16",)
    )
    assert cut_step(blueprint, "east", "south", cut=False).lines == (
        "route replace 10.2.0.0/16 via 169.254.1.2 dev to1 onlink",
    )


def test_the_forwarder_needs_routes_only():
    lines = by_space(list(tun_steps(draw(cluster(**LINK), nodes_per_dc=1), carried=frozenset({"south"}))))
    assert lines == {
        (Space("east", 0), "ip"): [
            "link set lo up",
            "link set wan mtu 9000 txqueuelen 10000 up",
            "route add 10.2.0.0/16 window 1000000 dev wan src 10.1.0.1",
        ],
        (Space("south", 0), "ip"): [
            "link set lo up",
            "link set wan mtu 9000 txqueuelen 10000 up",
            "addr add 10.2.0.1/32 dev wan",
            "route add 10.2.0.0/16 dev wan src 10.2.0.1",
            "route add 10.1.0.0/16 window 1000000 dev wan src 10.2.0.1",
        ],
    }


def test_a_fabric_is_a_bridge_with_a_rate_both_ways():
    blueprint = draw(cluster("east", fabric={"rate": "8 Gbit/s"}), nodes_per_dc=1)
    lines = by_space(list(fabric_steps(blueprint, path, carried=frozenset(), netem=False)))
    limit = "root tbf rate 1000000000bps burst 500000 limit 10500000"
    assert lines[Space("east", 0), "ip"] == ["link set lo up", "addr add 10.1.0.1/16 dev fabric", "link set fabric up"]
    assert lines[Space("east", 0), "tc"] == [f"qdisc add dev fabric {limit}"]
    assert lines[Space("east"), "tc"] == [f"qdisc add dev n0 {limit}"]


@pytest.mark.parametrize(
    ("fabric", "netem", "lines"),
    [
        pytest.param(FabricSpec(), True, [], id="unlimited"),
        pytest.param(FabricSpec(latency_s=1e-5), True, [], id="no-more-than-veth"),
        pytest.param(
            FabricSpec(rate=1e9, latency_s=1e-3),
            True,
            ["qdisc add dev fabric root netem delay 0.001000s limit 10000 rate 1000000000bps"],
            id="slow",
        ),
    ],
)
def test_the_latency_of_a_fabric_is_netems_where_it_can_be_seen(fabric: FabricSpec, netem: bool, lines: list[str]):
    assert shape_lines("fabric", fabric, netem=netem) == lines


def test_buffers_follow_from_windows_or_from_what_a_round_trip_holds():
    window = draw(cluster(rtt="40 ms", pair_cap="5 Gbit/s", tcp_window="10 MB"))
    assert sysctls(window, "east")["net/ipv4/tcp_rmem"] == "4096 40000000 40000000"
    assert sysctls(window, "east", tight=True)["net/ipv4/tcp_rmem"] == "4096 10500000 10500000"
    free = draw(cluster(rtt="40 ms", pair_cap="5 Gbit/s"))
    assert sysctls(free, "east")["net/ipv4/tcp_wmem"] == "4096 65536 100000000"
    assert sysctls(free, "east", tight=True)["net/ipv4/tcp_rmem"] == "4096 100000000 100000000"
    assert sysctls(draw(cluster("east")), "east")["net/ipv4/tcp_rmem"] == "4096 8388608 8388608"
