import re
from pathlib import Path

import pytest

from geotrain.cluster import GPUS, Cluster, Link
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


def _lab(**fields: object) -> Cluster:
    return Cluster.parse({"datacenters": [{"name": "lab", "nodes": 1, **fields}]}, source=Path("cluster.yaml"))


def test_a_gpu_of_the_catalog_may_have_figures_of_its_own_and_is_the_same_after_a_round_trip():
    cluster = _lab(gpu={"base": "h100", "memory": "94 GB", "name": "h100-94gb"})
    gpu, base = cluster.datacenter("lab").gpu, GPUS["h100"]
    assert (gpu.name, gpu.memory_bytes) == ("h100-94gb", 94e9)
    assert gpu.model_copy(update={"name": base.name, "memory_bytes": base.memory_bytes}) == base
    assert Cluster.parse(cluster.dump(), source=Path("cluster.yaml")) == cluster
    assert _lab(gpu={"base": "H100"}) == _lab(gpu="h100")


@pytest.mark.parametrize(
    ("gpu", "sentence"),
    [
        pytest.param(
            {"base": "h1000"}, "gpu: base is 'h1000' and is not in the GPU catalog: did you mean 'h100'", id="base"
        ),
        pytest.param(
            {"base": "h100", "memry": "1 GB"}, "gpu.memry is not a known field: did you mean 'memory'", id="field"
        ),
        pytest.param({"base": "h100", "memory": "94 G"}, "gpu.memory is '94 G' and has the unknown unit", id="unit"),
    ],
)
def test_a_changed_gpu_that_is_wrong_is_told_in_one_sentence(gpu: dict[str, str], sentence: str):
    with pytest.raises(InputError, match=re.escape(f"cluster.yaml: datacenters[0].{sentence}")):
        _lab(gpu=gpu)


def test_the_schema_knows_a_changed_gpu():
    schema = Cluster.model_json_schema()
    changed = schema["$defs"]["_ChangedGpu"]
    assert (changed["required"], changed["title"]) == (["base"], "ChangedGpu")
    assert "h100" in changed["properties"]["base"]["enum"] and "memory" in changed["properties"]
    choices = schema["$defs"]["Datacenter"]["properties"]["gpu"]["anyOf"]
    assert [choice.get("$ref") for choice in choices] == [None, "#/$defs/_ChangedGpu", "#/$defs/Gpu"]


GIB = 2.0**30


@pytest.mark.parametrize(
    ("gpu", "given", "reserve_bytes"),
    [
        pytest.param("h100", {}, 0.06 * 80 * GIB, id="default"),
        pytest.param("v100", {}, 2 * GIB, id="default-at-least-2-GiB"),
        pytest.param({"base": "v100", "memory": "8 GiB"}, {}, 1 * GIB, id="default-at-most-an-eighth"),
        pytest.param("h100", {"memory_reserve": "4 GiB"}, 4 * GIB, id="size"),
        pytest.param("h100", {"memory_reserve": " 10 %"}, 8 * GIB, id="share"),
        pytest.param("h100", {"memory_reserve": 0}, 0, id="none"),
    ],
)
def test_a_part_of_every_gpu_is_kept_free(gpu: object, given: dict[str, object], reserve_bytes: float):
    cluster = _lab(gpu=gpu, **given)
    lab = cluster.datacenter("lab")
    assert lab.reserve_bytes == pytest.approx(reserve_bytes)
    assert lab.usable_bytes + lab.reserve_bytes == lab.gpu.memory_bytes
    assert Cluster.parse(cluster.dump(), source=Path("cluster.yaml")) == cluster


@pytest.mark.parametrize(
    ("reserve", "sentence"),
    [
        pytest.param(
            "80 GiB", "datacenters[0]: memory_reserve is 80 GiB and must be below the 80 GiB of a h100", id="all"
        ),
        pytest.param("-1 GiB", "datacenters[0].memory_reserve is '-1 GiB' and must be at least 0", id="negative"),
        pytest.param(
            "100%", "datacenters[0].memory_reserve is '100%' and must be at least 0% and below 100%", id="100%"
        ),
        pytest.param("much%", "datacenters[0].memory_reserve is 'much%' and must be a size such as", id="text"),
    ],
)
def test_a_reserve_that_leaves_nothing_or_means_nothing_is_refused(reserve: str, sentence: str):
    with pytest.raises(InputError, match=re.escape(sentence)):
        _lab(gpu="h100", memory_reserve=reserve)


def test_gpus_of_one_name_that_differ_are_different_kinds(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    path.write_text(HEAD + "  - {name: north, nodes: 1, gpu: {base: h100, bf16: 100 TFLOP/s}}\n")
    cluster = Cluster.load(path)
    assert [cluster.gpu_kind(dc.name) for dc in cluster.datacenters] == [
        "a100-80gb", "h100 of south", "h100 of south", "h100 of north",
    ]  # fmt: skip
