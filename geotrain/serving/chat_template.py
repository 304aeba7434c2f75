"""A conversation as one text: the model's own Jinja template, or a plain one.

Templates come with models, so they run in Jinja's sandbox, in a process of their own, for a limited time. They get what
transformers gives them: `messages`, `add_generation_prompt`, the special tokens, `raise_exception`, `strftime_now`.
"""

import json
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from geotrain.errors import InputError
from geotrain.serving import rendering

PLAIN = "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content }}\n\n{% endfor %}Assistant:"
"""For models that bring none: `User: ...`, a blank line, and so on up to `Assistant:`."""
_LIMIT_S = 2.0
_START_S = 60.0
"""The longest that a process may take to start, or to be heard of; it ends by itself when a template takes too long."""
_MOST_CHARS = 1 << 24


class ChatTemplate:
    """One template, ready to use by several threads."""

    def __init__(
        self, source: str = PLAIN, *, specials: Mapping[str, str] | None = None, limit_s: float = _LIMIT_S
    ) -> None:
        """ValueError if it cannot be compiled. `specials` are the texts of tokens such as bos_token."""
        if not isinstance(source, str):
            raise ValueError("it must be a text")
        self._specials = dict(specials or {})
        self._renderer = None if source == PLAIN else _Renderer(source, limit_s)
        self._plain = rendering.compiled(PLAIN)

    @property
    def is_quick(self) -> bool:
        """Whether rendering needs no process, and so no time worth mentioning."""
        return self._renderer is None

    def render(self, messages: Sequence[Mapping[str, str]], *, max_chars: int = _MOST_CHARS) -> str:
        """Return the text up to where the assistant speaks; waits for the template's process.

        InputError if the template does not take these messages, takes too long, or makes a longer text of them;
        TimeoutError if it is busy with others for too long.
        """
        try:
            if self._renderer is None:
                return rendering.rendered(self._plain, messages, self._specials, max_chars)
            return self._renderer.render(messages, self._specials, max_chars)
        except (ValueError, rendering.TooLongError) as error:
            raise InputError(f"the model's chat template does not take these messages: {error}") from None


class _Renderer:
    """A process that renders one template after another, and is started again when it has ended."""

    def __init__(self, source: str, limit_s: float) -> None:
        self._source, self._limit_s = source, limit_s
        self._lock = threading.Lock()
        self._end = self._start()

    def render(self, messages: Sequence[Mapping[str, str]], specials: Mapping[str, str], max_chars: int) -> str:
        if not self._lock.acquire(timeout=2 * self._limit_s):
            raise TimeoutError
        try:
            if self._process.poll() is not None:
                self._end()
                self._end = self._start()
            return self._ask(messages=messages, specials=specials, max_chars=max_chars)
        finally:
            self._lock.release()

    def _start(self) -> "weakref.finalize[Any, Any]":
        self._process = subprocess.Popen(
            [sys.executable, "-P", rendering.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._end = weakref.finalize(self, _end, self._process)
        self._ask(source=self._source)
        return self._end

    def _ask(self, **asked: Any) -> str:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        answer = b""
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asked | {"limit_s": self._limit_s}).encode() + b"\n")
            process.stdin.flush()
            poll = select.poll()
            poll.register(process.stdout, select.POLLIN)
            if poll.poll((self._limit_s + _START_S) * 1000):
                answer = process.stdout.readline()
        if not answer.endswith(b"\n"):
            self._end()
            raise ValueError(f"it took longer than {self._limit_s:g} s of a CPU, or more memory than it may have")
        said = json.loads(answer)
        if "error" in said:
            raise ValueError(said["error"])
        text: str = said["text"]
        return text


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
