"""A run on a testbed: nodes with addresses of their own, a WAN between data centers."""

import json
from pathlib import Path
from typing import Any

import pytest

from geotrain.errors import InputError
from geotrain.testbed import Testbed
from geotrain.training.launch import Namespaces, Run, needed_testbed
from tests.testbed.machine import require_namespaces
from tests.training.launch.runs import launch

pytestmark = pytest.mark.slow


def answers(out: Path) -> dict[str, dict[str, Any]]:
    return {name: json.loads((out / f"{name}.json").read_text()) for name in ("east-0", "east-1", "south-0")}


@pytest.mark.parametrize("max_restarts", [0, 1], ids=["workers", "agents"])
def test_nodes_reduce_in_their_data_center_and_meet_over_the_wan(tmp_path: Path, max_restarts: int):
    require_namespaces()
    given = launch(tmp_path, "meet", stages=["east", "east", "south"], max_restarts=max_restarts)
    if max_restarts:
        (tmp_path / "crash").touch()  # east-1 dies in the middle of its first attempt.
    with needed_testbed(given.seating) as bed, Run(given, Namespaces(given.seating, bed)) as run:
        run.wait(deadline_s=110)
    found = answers(tmp_path)
    assert [answer["sum"] for answer in found.values()] == [1.0, 1.0, 0.0]
    assert [answer["met"] for answer in found.values()] == [["south-0", "10.2.0.1"], [], ["10.1.0.1"]]
    told = [answer["told"] for answer in found.values()]
    assert [(each["RANK"], each["WORLD_SIZE"], each["LOCAL_RANK"]) for each in told] == [
        *(("0", "2", "0"), ("1", "2", "0")),
        ("0", "1", "0"),
    ]
    assert [each["GEOTRAIN_ADDRESS"] for each in told] == ["10.1.0.1", "10.1.0.2", "10.2.0.1"]


def test_only_the_plan_s_data_centers_and_nodes_are_built():
    blueprint = needed_testbed(launch(Path(), "leave", stages=["west", "east", "east"]).seating).blueprint
    assert [(node.dc, node.index) for node in blueprint.nodes] == [("west", 0), ("west", 1), ("east", 0), ("east", 1)]


def test_a_testbed_that_is_too_small_is_refused(tmp_path: Path):
    given = launch(tmp_path, "leave", stages=["east", "east", "south"])
    small = Testbed(given.seating.plan.cluster, nodes_per_dc=1)
    with pytest.raises(InputError, match="east has no node 1 in this testbed, only node 0"):
        Run(given, Namespaces(given.seating, small)).__enter__()
