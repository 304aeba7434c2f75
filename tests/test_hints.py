import pytest

from geotrain.hints import hint, nearest


@pytest.mark.parametrize(
    ("name", "near"),
    [
        pytest.param("a100", ["a100-40gb", "a100-80gb"], id="beginning"),
        pytest.param("H100", ["h100"], id="case"),
        pytest.param("h10O", ["h100"], id="typo"),
        pytest.param("", [], id="empty"),
        pytest.param("potato", [], id="nothing-like-it"),
    ],
)
def test_the_nearest_names_are_those_begun_or_else_the_one_spelled_like_it(name: str, near: list[str]):
    assert nearest(name, ["a100-40gb", "a100-80gb", "h100"]) == near


def test_a_hint_asks_or_lists_what_is_known():
    assert hint("eats", ["east", "west"]) == "did you mean 'east'?"
    assert hint("moon", ["east", "west"]) == "known are east, west"
    assert hint("moon", ["east", "west"], otherwise="see the map") == "see the map"
