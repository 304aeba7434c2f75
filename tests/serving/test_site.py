"""Which processes prefill, and on which GPU of which machine."""

from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.prefill.settings import Settings
from geotrain.serving.site import Site, site
from tests.serving import live
from tests.serving.prefilling import SHAPE
from tests.training.plans import plan


def here(decided: Plan, dc: str | None = None, node: int | None = None) -> Site:
    return site(decided, SHAPE.shape(live.NAME), Settings(), dc=dc, node=node)


def of(found: Site) -> list[tuple[str, int]]:
    return list(zip(found.names, found.local_ranks, strict=True))


THREE_AND_ONE = plan(("east", "east", "east", "south"), gpus_per_node=2)
"""Two nodes in the east, of which the second is half full."""


def test_all_are_here_unless_somebody_says_otherwise():
    assert of(here(THREE_AND_ONE)) == [("east-0", 0), ("east-1", 1), ("east-2", 0), ("south-0", 0)]
    assert of(here(THREE_AND_ONE, "east")) == [("east-0", 0), ("east-1", 1), ("east-2", 0)]


def test_a_node_is_one_machine_of_a_data_center():
    assert of(here(THREE_AND_ONE, "east", 0)) == [("east-0", 0), ("east-1", 1)]
    assert of(here(THREE_AND_ONE, "east", 1)) == [("east-2", 0)]
    assert of(here(THREE_AND_ONE, "south", 0)) == [("south-0", 0)]
    assert here(THREE_AND_ONE, "east", 1).slots == here(THREE_AND_ONE).slots[2:3], "with the windows of its own stage"


def test_gpus_that_only_prefill_are_on_no_node_of_training():
    content = THREE_AND_ONE.dump()
    content["cluster"]["datacenters"][0]["prefill_gpus"] = 2
    decided = Plan.parse(content, source=Path("plan.yaml"))
    assert of(here(decided, "east"))[3:] == [("east-prefill-0", 2), ("east-prefill-1", 3)]
    assert of(here(decided, "east", 1)) == [("east-2", 0)]


@pytest.mark.parametrize(
    ("dc", "node", "sentence"),
    [
        pytest.param(None, 0, "--node needs --dc: nodes are counted within a data center", id="of-which"),
        pytest.param("east", 2, "--node is 2, and the plan uses nodes 0 to 1 of east", id="no-such"),
    ],
)
def test_a_node_that_is_none(dc: str | None, node: int, sentence: str):
    with pytest.raises(InputError) as raised:
        here(THREE_AND_ONE, dc, node)
    assert str(raised.value) == sentence
