import pytest

from geotrain.errors import InputError
from geotrain.testbed import Blueprint, draw
from geotrain.testbed.blueprint import Way
from tests.testbed.clusters import cluster


def test_nodes_get_addresses_and_links_get_their_figures():
    blueprint = draw(cluster(rtt="40 ms", pair_cap="5 Gbit/s", tcp_window="1.465 MB"), nodes_per_dc=2)
    assert [(node.dc, node.index, node.address) for node in blueprint.nodes] == [
        ("east", 0, "10.1.0.1"),
        ("east", 1, "10.1.0.2"),
        ("south", 0, "10.2.0.1"),
        ("south", 1, "10.2.0.2"),
    ]
    assert blueprint.way("east", "south") == Way(
        source="east",
        target="south",
        delay_s=0.02,
        round_trip_s=0.04,
        pair_cap=625e6,
        capacity=None,
        window_bytes=1465000,
        loss=0.0,
    )
    assert Blueprint.model_validate_json(blueprint.model_dump_json()) == blueprint


def test_no_more_nodes_than_the_file_has():
    assert len(draw(cluster(nodes=1), nodes_per_dc=3).nodes) == 2


def test_a_queue_holds_a_round_trip_of_its_rate_and_never_less_than_some_large_packets():
    way = draw(cluster(rtt="40 ms")).way("east", "south")
    assert [way.queue_bytes(625e6), way.queue_bytes(1e6)] == [25e6, 2e6]


def test_addresses_of_many_nodes_are_different():
    addresses = {node.address for node in draw(cluster("east", nodes=256), nodes_per_dc=256).nodes}
    assert len(addresses) == 256
    assert {"10.1.0.250", "10.1.1.1"} <= addresses


@pytest.mark.parametrize(
    ("nodes", "options", "sentence"),
    [
        pytest.param(4, {"nodes_per_dc": 0}, "--nodes-per-dc is 0 and must be at least 1", id="nodes"),
        pytest.param(4, {"mtu": 100}, "--mtu is 100 and must be between 576 and 65000", id="mtu"),
        pytest.param(0, {}, "the cluster 'test' has no nodes", id="empty"),
        pytest.param(
            600,
            {"nodes_per_dc": 600},
            "a testbed of 2 data centers with 1200 nodes is too large for one machine: at most 256 nodes",
            id="large",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(nodes: int, options: dict[str, int], sentence: str):
    with pytest.raises(InputError) as error:
        draw(cluster(nodes=nodes), **options)
    assert str(error.value) == sentence
