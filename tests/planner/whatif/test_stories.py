"""The stories, told over a planner that is plain arithmetic; `tests/cli/test_whatif.py` has the real one."""

import pytest

from geotrain.cluster import Cluster
from geotrain.errors import InputError
from geotrain.planner import Ask
from geotrain.planner.whatif import Exploration, InProcess, Notebook, find_story
from tests.planner.whatif.tasks import arithmetic, cluster, job


def tell(name: str, base: Cluster) -> Exploration:
    exploration = Exploration(workers=InProcess(), notebook=Notebook(), function=arithmetic)
    exploration.run(find_story(name)(base, job(), Ask()))
    return exploration


def texts(told: Exploration) -> list[str]:
    return [row.point.settings[0].text for row in told.rows]


def test_add_a_data_center():
    told = tell("add-dc", cluster(60, 30, 5))
    assert texts(told) == ["a", "+ b", "+ c"]
    assert told.sentence == (
        "Data centers in the order of the file: b is worth it, +50.0% tokens/s at 1.00x the cost per token; "
        "c is left out."
    )


def test_add_a_data_center_without_which_nothing_fits():
    assert tell("add-dc", cluster(0, 30)).sentence == (
        "Data centers in the order of the file: it takes b to fit at all."
    )


def test_lose_a_data_center():
    told = tell("lose-dc", cluster(60, 40, 5))
    assert texts(told) == ["none", "a", "b", "c"]
    assert told.sentence == "The loss of a hurts most, 55.0% fewer tokens/s; c can go without a loss."


def test_a_second_data_center_that_is_a_fraction_of_the_first():
    told = tell("fraction", cluster(600, 600, 600))
    assert texts(told)[:4] == ["0% = 0 nodes", "5% = 30 nodes", "10% = 60 nodes", "20% = 120 nodes"]
    assert told.sentence == (
        "A second data center of 10% or less is left out; one as large as the first brings +100.0% tokens/s."
    )


def test_bandwidth_that_halves():
    told = tell("halve", cluster(60, 60))
    assert texts(told) == ["1", "1/2", "1/4", "1/8", "1/16", "1/32"]
    assert told.sentence == (
        "Half the bandwidth leaves 100.0% of the tokens/s and 1/32 leaves 12.5%; "
        "data centers and the way across stay the same."
    )
    assert tell("halve", cluster(60)).sentence == "Less bandwidth changes nothing: the best plan stays in a."


def test_halving_scales_every_limit_of_every_link():
    links = [{"between": ["a", "b"], "capacity": "80 Gbit/s", "pair_cap": None}]
    last = tell("halve", cluster(60, 60, links=links)).rows[-1].point.cluster
    assert (last.wan.default.pair_cap, last.link("a", "b").capacity) == (625e6 / 32, 10e9 / 32)
    assert last.link("a", "b").pair_cap is None


def test_the_knee():
    told = tell("knee", cluster(60, 60, links=[{"between": ["a", "b"], "pair_cap": "1 Gbit/s"}]))
    # 2% below what 1.25 Gbit/s gives, found to 4%.
    assert told.sentence.startswith("The knee is at 1.3 Gbit/s per pair: ")
    caps = [row.point.settings[0].plain for row in told.rows]
    assert caps[0] is None
    assert caps[1:] == sorted(caps[1:], key=float, reverse=True)  # type: ignore[arg-type]
    assert {row.point.cluster.link("a", "b").pair_cap for row in told.rows} == set(caps)


def test_there_is_no_knee_where_nothing_crosses_the_wan():
    assert tell("knee", cluster(60, 1)).sentence == (
        "There is no knee: even over an unlimited WAN the best plan stays in a."
    )


@pytest.mark.parametrize("name", ["add-dc", "halve", "knee"])
def test_a_cluster_where_nothing_fits_is_told_too(name: str):
    assert "othing fits" in tell(name, cluster(0, 0)).sentence


@pytest.mark.parametrize(
    ("name", "base", "complaint"),
    [
        ("lose", cluster(1, 1), "--story lose: is not a known story: did you mean 'lose-dc'?"),
        ("add-dc", cluster(1), "--story add-dc needs two data centers, and the cluster has 1"),
        ("lose-dc", cluster(1, 0), "--story lose-dc needs two data centers with nodes, and the cluster has 1"),
        ("fraction", cluster(0, 1), "--story fraction needs nodes in 'a', the first data center of the file"),
        (
            "halve",
            cluster(1, 1, pair_cap=None),
            "--story halve needs a pair_cap or capacity in the cluster's wan, where all is unlimited",
        ),
    ],
)
def test_what_a_story_needs_is_said(name: str, base: Cluster, complaint: str):
    with pytest.raises(InputError) as error:
        tell(name, base)
    assert str(error.value) == complaint
