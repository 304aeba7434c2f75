"""Writing a probe into a cluster file changes the link and nothing else."""

from pathlib import Path

import pytest

from geotrain.cluster import Cluster
from geotrain.errors import InputError
from geotrain.wan.clusterfile import write_link
from tests.wan.sample import probe, way

HEAD = """# mine
name: c
datacenters:
  - {name: east, nodes: 1, gpu: a100-80gb}   # here
  - {name: south, nodes: 1, gpu: a100-80gb}
  - {name: west, nodes: 1, gpu: a100-80gb}
"""
NEW = "{between: [east, south], rtt: 40 ms, pair_cap: 1.008 Gbit/s, tcp_window: 1.465 MB}"
FIELDS = "rtt: 40 ms, pair_cap: 1.008 Gbit/s, tcp_window: 1.465 MB"

CASES = {
    "no-wan": ("", f"wan:\n  links:\n    - {NEW}\n"),
    "no-links": (
        "wan:\n  default:\n    rtt: 9 ms   # d\n  # links: none yet\n",
        f"wan:\n  default:\n    rtt: 9 ms   # d\n  links:\n    - {NEW}\n  # links: none yet\n",
    ),
    "flow-wan": ("wan: {default: {rtt: 9 ms}}  # w\n", f"wan: {{default: {{rtt: 9 ms}}, links: [{NEW}]}}  # w\n"),
    "empty-links": ("wan:\n  links: []\n", f"wan:\n  links: [{NEW}]\n"),
    "other-link": (
        "wan:\n  links:\n    - between: [east, west]\n      rtt: 7 ms  # w\n\n# end\n",
        f"wan:\n  links:\n    - between: [east, west]\n      rtt: 7 ms  # w\n    - {NEW}\n\n# end\n",
    ),
    "flow-entry": (
        "wan:\n  links:\n    - {between: [south, east], rtt: 7 ms, price_per_gb: 0.02}  # x\n",
        "wan:\n  links:\n    - {between: [south, east], rtt: 40 ms, price_per_gb: 0.02, pair_cap: 1.008 Gbit/s, "
        "tcp_window: 1.465 MB}  # x\n",
    ),
    "block-entry": (
        "wan:\n  links:\n    - between: [east, south]\n      tcp_window: 1 MB   # t\n      rtt: 7 ms   # r\n# end\n",
        "wan:\n  links:\n    - between: [east, south]\n      tcp_window: 1.465 MB   # t\n      rtt: 40 ms   # r\n"
        "      pair_cap: 1.008 Gbit/s\n# end\n",
    ),
    "one-way-entry": (
        "wan:\n  links:\n    - {from: south, to: east, rtt: 7 ms}\n",
        "wan:\n  links:\n    - {from: south, to: east, rtt: 40 ms, pair_cap: 1.008 Gbit/s, tcp_window: 1.465 MB}\n"
        f"    - {{from: east, to: south, {FIELDS}}}\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_only_the_link_changes(tmp_path: Path, before: str, after: str):
    path = tmp_path / "cluster.yaml"
    path.write_text(HEAD + before)
    write_link(path, probe(), "east", "south")
    assert path.read_text() == HEAD + after
    for link in (Cluster.load(path).link("east", "south"), Cluster.load(path).link("south", "east")):
        assert (link.rtt_s, link.pair_cap, link.tcp_window_bytes) == (0.04, 126e6, 1.465e6)
    again = path.read_text()
    write_link(path, probe(), "east", "south")
    assert path.read_text() == again


def test_directions_that_differ_get_an_entry_each(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    path.write_text(HEAD + "wan: {default: {price_per_gb: 0.5}}\n")
    rows = write_link(path, probe(back=way(10e6, 20e6, 20e6)), "east", "south")
    assert rows == [
        "from east to south: rtt: 40 ms, pair_cap: 1.008 Gbit/s, tcp_window: 1.465 MB",
        "from south to east: rtt: 40 ms, pair_cap: 160 Mbit/s, tcp_window: 400 kB",
    ]
    back = Cluster.load(path).link("south", "east")
    assert (back.pair_cap, back.tcp_window_bytes, back.price_per_gb) == (20e6, 400e3, 0.5)


def test_a_link_that_shares_its_text_with_another_is_left_alone(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    shared = "wan:\n  default: {rtt: &r 7 ms}\n  links:\n    - {between: [east, south], rtt: *r}\n"
    path.write_text(HEAD + shared)
    with pytest.raises(InputError, match="is written in a way that is not changed by itself"):
        write_link(path, probe(), "east", "south")
    assert path.read_text() == HEAD + shared


def test_an_unknown_data_center_is_refused(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    path.write_text(HEAD)
    with pytest.raises(InputError, match="the unknown data center 'sout': did you mean 'south'"):
        write_link(path, probe(), "east", "sout")
