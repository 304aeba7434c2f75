"""Templates are programs from outside: they end in time, whatever they do."""

import os
import signal
import threading

import pytest

from geotrain.errors import InputError
from geotrain.serving.chat_template import ChatTemplate

HELLO = [{"role": "user", "content": "hello"}]
SPIN = [{"role": "user", "content": "spin"}]
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
PICKY = "{% if messages[0].content == 'spin' %}" + ENDLESS + "{% endif %}{{ messages[0].content }}"


def test_a_template_that_does_not_end_is_ended_and_the_next_conversation_is_rendered():
    template = ChatTemplate(PICKY, limit_s=0.5)
    assert template.render(HELLO) == "hello"
    with pytest.raises(InputError, match=r"does not take these messages: it took longer than 0\.5 s of"):
        template.render(SPIN)
    assert template.render(HELLO) == "hello"


def test_no_process_is_left_behind():
    template = ChatTemplate(PICKY, limit_s=0.5)
    assert template._renderer is not None
    first = template._renderer._process
    with pytest.raises(InputError):
        template.render(SPIN)
    assert first.returncode is not None
    template.render(HELLO)
    second = template._renderer._process
    del template
    assert second.returncode is not None


def test_a_process_that_was_killed_is_started_again():
    template = ChatTemplate(PICKY)
    assert template._renderer is not None
    os.kill(template._renderer._process.pid, signal.SIGKILL)
    template._renderer._process.wait()
    assert template.render(HELLO) == "hello"


def test_a_conversation_that_waits_for_another_one_too_long_is_told_so():
    template = ChatTemplate(PICKY, limit_s=0.2)
    assert template._renderer is not None
    with template._renderer._lock, pytest.raises(TimeoutError):
        template.render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", id="piece by piece"),
        pytest.param("{% for message in messages %}{{ message.content * 100000 }}{% endfor %}", id="at once"),
        pytest.param("{{ messages[0].content * 10000000000 }}", id="more than memory"),
    ],
)
def test_a_text_that_grows_is_cut_short(source: str):
    with pytest.raises(InputError, match=r"more than 1000 characters|MemoryError|more memory"):
        ChatTemplate(source, limit_s=10.0).render(HELLO, max_chars=1000)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("{% for %}", "Expected an expression", id="wrong"),
        pytest.param("{{ 'x' * 99999999999 }}", "MemoryError|memory", id="large when compiled"),
    ],
)
def test_a_template_that_cannot_be_compiled(source: str, message: str):
    with pytest.raises((ValueError, InputError), match=message):
        ChatTemplate(source, limit_s=10.0).render(HELLO)


def test_threads_take_turns():
    template, texts = ChatTemplate("{{ messages[0].content }}", limit_s=20.0), []

    def render(word: str) -> None:
        texts.append(template.render([{"role": "user", "content": word * 1000}]) == word * 1000)

    threads = [threading.Thread(target=render, args=(word,)) for word in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [True] * 8
