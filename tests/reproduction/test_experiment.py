import inspect
from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.reproduction import Claim, chosen, load, names
from geotrain.reproduction.experiment import EXPERIMENTS
from geotrain.reproduction.kinds import KINDS

CLAIM = {"says": "so", "value": 1.0, "source": "us", "trust": "none", "ours": {"figure": "speed"}}


def test_every_file_has_its_place_in_the_order():
    assert sorted(names()) == sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])
@pytest.mark.parametrize("name", names())
def test_the_inputs_of_a_file_are_those_of_its_kind(name, quick):
    experiment = load(name)
    inspect.signature(KINDS[experiment.kind]).bind(**experiment.arguments(quick=quick))


@pytest.mark.parametrize("name", names())
def test_what_is_not_read_in_the_paper_is_marked(name):
    experiment = load(name)
    for claim in experiment.claims:
        assert ("abstract" in claim.source) == (claim.trust == "page")
    if any(claim.trust != "none" for claim in experiment.claims):
        assert experiment.guesses


def test_quick_leaves_out_what_needs_the_testbed():
    left_out = set(chosen([], quick=False)) - set(chosen([], quick=True))
    assert left_out == {"wan-testbed", "training-testbed", "prefill-live"}


def test_names_come_in_the_order_of_the_story():
    assert chosen(["auto", "bandwidth"], quick=True) == ["bandwidth", "auto"]


@pytest.mark.parametrize("tests", [{}, {"within": 0.1, "at_least": True}], ids=["none", "two"])
def test_a_claim_says_in_one_way_what_would_confirm_it(tests):
    with pytest.raises(InputError, match="must have one of within, at_least and at_most"):
        Claim.parse(CLAIM | tests, source=Path("claim.yaml"))
