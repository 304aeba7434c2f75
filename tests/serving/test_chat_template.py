"""Templates are programs from outside: they are compiled where that ends in time, whatever they do."""

import pytest

from geotrain.errors import InputError
from geotrain.serving.chat_template import PLAIN, ChatTemplate, check

HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", id="piece by piece"),
        pytest.param("{% for message in messages %}{{ message.content * 1000 }}{% endfor %}", id="at once"),
    ],
)
def test_a_text_that_grows_is_cut_short(source: str):
    with pytest.raises(InputError, match="more than 1000 characters"):
        ChatTemplate(source).render(HELLO, max_chars=1000)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("{% for %}", "Expected an expression", id="wrong"),
        pytest.param(["x"], "must be a text", id="no text"),
    ],
)
def test_a_template_that_cannot_be_compiled(source: object, message: str):
    with pytest.raises(ValueError, match=message):
        check(source)


def test_a_template_that_can_be_compiled():
    check(PLAIN)
    check("{{ messages[0].content }} \ud800")
