from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import geotrain
from geotrain.errors import InputError
from geotrain.seating import Seating
from geotrain.tokens.build import build, learn
from geotrain.tokens.texts import Tree, find_texts
from geotrain.training.assembly import open_batches
from geotrain.training.optimizer import Recipe
from geotrain.training.options import Options
from geotrain.training.script import Script
from geotrain.training.terms import check, terms
from tests.training.alone import train_alone
from tests.training.data import VOCAB, dataset
from tests.training.plans import MODEL, plan

pytestmark = pytest.mark.slow


DECIDED = plan(["east", "south"], job={"model": MODEL | {"layers": 2, "vocab": VOCAB}})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of this package's own sources."""
    return dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def other_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of other ones."""
    out = tmp_path_factory.mktemp("other") / "data"
    package = Path(geotrain.__file__).parent
    texts = find_texts([Tree(path=package / "schedule", glob="*.py")], avoid=out, watch=lambda *progress: None)
    build(texts, learn(texts, vocab_size=VOCAB, watch=lambda *progress: None), out, watch=lambda *progress: None)
    return out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 7}, "number of steps: 7 and 100"),
        ({"recipe": Recipe(clip=2.0)}, "recipe"),
        ({"start": Path("weights")}, "beginning: weights from a file and weights drawn from the seed"),
        ({"resume": False}, "--resume: False and True"),
        ({"sharded": True}, "--sharded: True and False"),
        ({"checkpoint_every": 0}, "--checkpoint-every: 0 and 50"),
    ],
)
def test_whoever_is_told_something_else_is_named(data: Path, change: dict[str, Any], words: str):
    options, script, seats = Options(dc="", out=data, data=data), Script.of(DECIDED), Seating(DECIDED).seats
    mine, theirs = (
        terms(DECIDED, script, told, open_batches(DECIDED, told)) for told in (options, replace(options, **change))
    )
    check(seats[0], mine, seats, [mine, mine])
    with pytest.raises(InputError, match=f"south-0 and east-0 differ in their {words}"):
        check(seats[0], mine, seats, [mine, theirs])


def test_data_centers_with_different_data_do_not_begin(data: Path, other_data: Path, tmp_path: Path):
    endings = train_alone(
        DECIDED,
        {
            "east": Options(dc="", out=tmp_path / "east", data=data, steps=2),
            "south": Options(dc="", out=tmp_path / "south", data=other_data, steps=2),
        },
    )
    for reports, error, code in endings.values():
        assert (reports, code) == ([], 2)
        assert "differ in their data set: " in error
