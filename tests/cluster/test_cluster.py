from pathlib import Path

import pytest

from geotrain.cluster import Cluster, Link
from geotrain.errors import InputError

HEAD = """
datacenters:
  - {name: east, nodes: 4, gpus_per_node: 8, gpu: a100-80gb}
  - {name: south, nodes: 2, gpus_per_node: 4, gpu: h100}
  - {name: west, nodes: 1, gpu: h100}
"""


@pytest.fixture
def load(tmp_path: Path):
    def load(wan: str = "") -> Cluster:
        path = tmp_path / "cluster.yaml"
        path.write_text(HEAD + wan)
        return Cluster.load(path)

    return load


def test_data_centers_offer_whole_slots_of_one_node(load):
    cluster = load()
    assert [(dc.name, dc.num_gpus, dc.num_slots(1), dc.num_slots(3)) for dc in cluster.datacenters] == [
        ("east", 32, 32, 8),
        ("south", 8, 8, 2),
        ("west", 1, 1, 0),
    ]


def test_without_a_wan_section_every_link_is_unlimited(load):
    assert load().link("east", "south") == Link()


def test_a_link_takes_what_it_does_not_say_from_the_default(load):
    cluster = load("""
wan:
  default: {rtt: 40 ms, pair_cap: 5 Gbit/s}
  links:
    - {between: [east, south], rtt: 20 ms}
""")
    near, far = Link(rtt_s=0.02, pair_cap=625e6), Link(rtt_s=0.04, pair_cap=625e6)
    assert [cluster.link(*pair) for pair in [("east", "south"), ("south", "east"), ("east", "west")]] == [
        near,
        near,
        far,
    ]


@pytest.mark.parametrize("one_way_first", [True, False], ids=["one-way-first", "one-way-last"])
def test_one_direction_overrules_both_in_any_order_of_lines(load, one_way_first: bool):
    lines = ["    - {between: [east, south], rtt: 20 ms, price_per_gb: 1}", "    - {from: east, to: south, rtt: 30 ms}"]
    cluster = load("wan:\n  links:\n" + "\n".join(reversed(lines) if one_way_first else lines))
    assert cluster.link("east", "south") == Link(rtt_s=0.03, price_per_gb=1.0)
    assert cluster.link("south", "east") == Link(rtt_s=0.02, price_per_gb=1.0)


def test_a_gpu_of_your_own_is_a_mapping(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    path.write_text("""
datacenters:
  - name: lab
    nodes: 1
    gpu: {name: own, fp16: 100 TFLOP/s, fp32: 50 TFLOP/s, memory: 24 GiB, memory_bandwidth: 1 TB/s}
""")
    gpu = Cluster.load(path).datacenter("lab").gpu
    assert (gpu.name, gpu.bf16, gpu.peak_flops("fp16")) == ("own", None, 100e12)


@pytest.mark.parametrize(
    ("wan", "sentence"),
    [
        pytest.param(
            "wan: {links: [{between: [east, wset]}]}",
            "wan.links[0] names the unknown data center 'wset': did you mean 'west'?",
            id="unknown-end",
        ),
        pytest.param(
            "wan: {links: [{from: east, to: east}]}",
            "wan.links[0] joins 'east' to itself and must join two data centers",
            id="to-itself",
        ),
        pytest.param(
            "wan: {links: [{from: east}]}",
            "wan.links[0]: needs either `between: [a, b]` or both `from` and `to`",
            id="one-end",
        ),
        pytest.param(
            "wan: {links: [{between: [east, south], from: east, to: south}]}",
            "wan.links[0]: needs either `between: [a, b]` or both `from` and `to`",
            id="both-forms",
        ),
        pytest.param(
            "wan: {default: {pair_cap: -4 Gbit/s}}",
            "wan.default.pair_cap is '-4 Gbit/s' and must be above 0",
            id="negative-rate",
        ),
        pytest.param(
            "  - {name: west, nodes: 1, gpu: h100}",
            "datacenters[3].name is 'west' and must differ from the names before it",
            id="name-twice",
        ),
        pytest.param(
            "  - {name: moon, nodes: 1, gpu: 7}",
            "datacenters[3].gpu is 7 and must be a mapping of fields",
            id="gpu-is-a-number",
        ),
    ],
)
def test_mistakes_name_file_field_and_value(load, tmp_path: Path, wan: str, sentence: str):
    with pytest.raises(InputError) as caught:
        load(wan)
    assert str(caught.value) == f"{tmp_path / 'cluster.yaml'}: {sentence}"


def test_what_is_dumped_reads_back_as_the_same_cluster(load, tmp_path: Path):
    cluster = load("wan: {default: {rtt: 40 ms}, links: [{from: east, to: west, capacity: 8 Gbit/s}]}")
    assert Cluster.parse(cluster.dump(), source=tmp_path / "again.yaml") == cluster


def test_an_unknown_data_center_is_answered_with_the_nearest(load):
    with pytest.raises(InputError, match=r"the unknown data center 'eats': did you mean 'east'\?"):
        load().datacenter("eats")
