from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from geotrain.serving.stopping import Stopper

TEXTS = st.text(alphabet="abc", max_size=30)
STRINGS = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=3)


def told(stopper: Stopper, *pieces: str) -> list[str]:
    return [stopper.add(piece) for piece in pieces]


def test_the_text_ends_ahead_of_a_string_that_comes_in_pieces():
    stopper = Stopper(["\n\nUser:"])
    assert told(stopper, "Yes.", "\n", "\nUs", "er: and", " more") == ["Yes.", "", "", "", ""]
    assert stopper.stopped
    assert stopper.rest() == ""


def test_what_might_have_been_a_string_is_told_as_soon_as_it_is_not():
    stopper = Stopper(["stop", "top hat"])
    assert told(stopper, "st", "art ", "sto", "p") == ["", "start ", "", ""]
    stopper = Stopper(["stop"])
    assert told(stopper, "ss", "st", "oo", "sto") == ["s", "s", "stoo", ""]
    assert (stopper.stopped, stopper.rest(), stopper.rest()) == (False, "sto", "")


def test_the_first_to_be_complete_ends_the_text():
    assert told(Stopper(["abc", "b"]), "abc") == ["a"]
    assert told(Stopper(["bc", "abc"]), "xabc") == ["x"]


@given(TEXTS, STRINGS, st.lists(st.integers(0, 30)))
def test_pieces_make_no_difference(text: str, strings: list[str], cuts: list[int]):
    whole, pieces = Stopper(strings), Stopper(strings)
    edges = [0, *sorted(cuts), len(text)]
    expected = whole.add(text) + whole.rest()
    found = "".join(told(pieces, *(text[a:b] for a, b in pairwise(edges))))
    assert text.startswith(found)
    assert not any(string in found for string in strings), "nothing of a string is ever told"
    assert found + pieces.rest() == expected
    assert pieces.stopped == whole.stopped == any(string in text for string in strings)
