"""What `--spell` takes and refuses."""

import pytest

from geotrain.cli._weather import parse_spell
from geotrain.errors import InputError
from geotrain.simulation.prefill.weather import Spell


def test_spells_read_like_a_sentence() -> None:
    assert parse_spell("wan x2 from 60 s for 1 min") == Spell(on="wan", start_s=60, end_s=120, factor=2)
    assert parse_spell("slot 3  x1.5 from 0 for 10min") == Spell(on=3, start_s=0, end_s=600, factor=1.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("rain", "must be like 'wan x2 from 60 s for 1 min'", id="not a spell"),
        pytest.param("wan x0 from 1 s for 1 s", "factor 0, which must be above 0 and at most 100", id="no time at all"),
        pytest.param("wan x1e9 from 1 s for 1 s", "must be like", id="an exponent"),
        pytest.param("wan x2 from 1 parsec for 1 s", "unknown unit 'parsec'", id="no unit of time"),
        pytest.param("wan x2 from -5 s for 1 s", "a time below 0", id="before the start"),
    ],
)
def test_what_is_no_spell_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_spell(text)
    assert said in str(refused.value) and "\n" not in str(refused.value)
