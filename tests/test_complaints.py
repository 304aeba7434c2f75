from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from geotrain.errors import InputError
from geotrain.files import Document, Number, Whole
from geotrain.units import PositiveRate, Seconds


class Wheel(Document):
    size: Whole = Field(ge=1, le=30)
    weight: Number = Field(0.0, gt=0)


class Car(Document):
    name: str = Field("car", min_length=1)
    color: Literal["red", "green"] = "red"
    wheels: list[Wheel] = Field(default_factory=list, max_length=4)
    spare: Wheel | list[Wheel] = Field(default_factory=list)
    gears: Literal["auto"] | Annotated[Whole, Field(ge=1)] = "auto"
    start_s: Seconds = Field(0.0, alias="start")
    radio: PositiveRate | None = None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param({"wheels": [{}]}, "wheels[0].size is missing", id="missing"),
        pytest.param({"wheels": [{"size": 0}]}, "wheels[0].size is 0 and must be at least 1", id="too-small"),
        pytest.param({"wheels": [{"size": 31}]}, "wheels[0].size is 31 and must be at most 30", id="too-large"),
        pytest.param({"wheels": [{"size": 4.0}]}, "wheels[0].size is 4.0 and must be a whole number", id="fraction"),
        pytest.param({"wheels": [{"size": True}]}, "wheels[0].size is true and must be a whole number", id="yes-no"),
        pytest.param(
            {"wheels": [{"size": 1, "weight": float("inf")}]},
            "wheels[0].weight is inf and must be a finite number",
            id="infinite",
        ),
        pytest.param({"wheels": 4}, "wheels is 4 and must be a list", id="not-a-list"),
        pytest.param({"wheels": [4]}, "wheels[0] is 4 and must be a mapping of fields", id="not-a-mapping"),
        pytest.param({"wheels": None}, "wheels is empty and must be a list", id="nothing"),
        pytest.param(
            {"wheels": [{"size": 1}] * 5}, "wheels is a list of 5 and must be a list of at most 4", id="too-many"
        ),
        pytest.param({"name": ""}, "name is '' and must be a text that is not empty", id="empty-text"),
        pytest.param({"name": {}}, "name is a mapping and must be a text", id="mapping-for-text"),
        pytest.param(
            {"color": "gren"}, "color is 'gren' and must be 'red' or 'green': did you mean 'green'?", id="near-choice"
        ),
        pytest.param({"color": 5}, "color is 5 and must be 'red' or 'green'", id="no-choice"),
        pytest.param({"gears": 0}, "gears is 0 and must be 'auto' or at least 1", id="union-too-small"),
        pytest.param({"gears": "six"}, "gears is 'six' and must be 'auto' or a whole number", id="union-wrong-type"),
        pytest.param({"spare": {"size": 0}}, "spare.size is 0 and must be at least 1", id="union-inside-one"),
        pytest.param({"spare": [{"size": 0}]}, "spare[0].size is 0 and must be at least 1", id="union-inside-list"),
        pytest.param({"spare": 5}, "spare is 5 and must be a mapping of fields or a list", id="union-neither"),
        pytest.param(
            {"spare": {"sise": 5}},
            "spare.sise is not a known field: did you mean 'size'? (and 1 more problem)",
            id="misspelled-says-more-than-missing",
        ),
        pytest.param(
            {"hifi": 1},
            "hifi is not a known field: known are name, color, wheels, spare, gears, start, radio",
            id="unknown-field",
        ),
        pytest.param({"start_s": 1}, "start_s is not a known field: did you mean 'start'?", id="only-the-alias"),
        pytest.param(
            {7: 1}, "7 is not a known field: known are name, color, wheels, spare, gears, start, radio", id="number-key"
        ),
        pytest.param({"start": "-1 ms"}, "start is '-1 ms' and must be at least 0", id="value-as-written"),
        pytest.param({"radio": "-4 Gbit/s"}, "radio is '-4 Gbit/s' and must be above 0", id="optional-as-written"),
        pytest.param({"radio": {}}, "radio is a mapping and must be a rate such as '5 Gbit/s'", id="mapping-for-rate"),
        pytest.param(
            {"color": 1, "gears": 0, "name": 2},
            "name is 2 and must be a text (and 2 more problems)",
            id="first-and-count",
        ),
    ],
)
def test_every_mistake_is_one_sentence(content: dict[object, object], sentence: str):
    with pytest.raises(InputError) as caught:
        Car.parse(content, source=Path("car.yaml"))
    assert str(caught.value) == f"car.yaml: {sentence}"


def test_a_long_value_is_shortened():
    with pytest.raises(InputError) as caught:
        Car.parse({"color": "r" * 1000}, source=Path("car.yaml"))
    assert len(str(caught.value)) < 200
