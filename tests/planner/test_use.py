import pytest

from geotrain.planner.use import kind_of, unused_datacenters, used_datacenters, uses
from tests.planner.answers import make_plan

NAMES = ["east", "south", "west"]


@pytest.mark.parametrize(
    ("choices", "kind"),
    [
        pytest.param({"used": ["south"]}, "all in south", id="one"),
        pytest.param({"used": ["west", "east"]}, "pipeline across west and east", id="pipeline"),
        pytest.param(
            {"used": ["south"], "replicas": ["east", "west"]}, "data parallel across south, east and west", id="data"
        ),
    ],
)
def test_a_plan_in_words(choices, kind):
    assert kind_of(make_plan(NAMES, **choices)) == kind


def test_a_pipeline_has_its_stages_where_they_are():
    plan = make_plan(NAMES, used=["south", "south", "east", "east"], cells=2)

    assert [(use.dc, use.stages, use.layers, use.pipelines, use.gpus, use.has_gpus) for use in uses(plan)] == [
        ("south", (0, 1), 4, 4, 8, 8),
        ("east", (2, 3), 4, 4, 8, 8),
    ]
    assert unused_datacenters(plan) == ["west"]


def test_whole_copies_are_counted_where_they_are():
    plan = make_plan(NAMES, used=["south", "south"], replicas=["west"])

    assert [(use.dc, use.stages, use.layers, use.pipelines, use.gpus) for use in uses(plan)] == [
        ("south", (0, 1), 8, 2, 4),
        ("west", (0, 1), 8, 2, 4),
    ]
    assert used_datacenters(plan) == ["south", "west"]
    assert sum(use.gpus for use in uses(plan)) == plan.num_gpus
