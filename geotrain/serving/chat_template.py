"""A conversation as one text: the model's own Jinja template, or a plain one.

Models' templates get what transformers gives them: `messages`, `add_generation_prompt`, the special tokens,
`raise_exception`, `strftime_now`.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property

from jinja2 import Template

from geotrain.errors import InputError
from geotrain.serving import rendering

PLAIN = "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content }}\n\n{% endfor %}Assistant:"
"""For models that bring none: `User: ...`, a blank line, and so on up to `Assistant:`."""
_MOST_CHARS = 1 << 24
_START_S = 60.0
"""The longest that a process may take to start and to end by itself."""


class ChatTemplate:
    """One template, compiled when it is first used."""

    def __init__(self, source: str = PLAIN, *, specials: Mapping[str, str] | None = None) -> None:
        """`specials` are the texts of tokens such as bos_token."""
        self.source, self.specials = source, dict(specials or {})

    @property
    def is_plain(self) -> bool:
        """Whether it is the one that takes no time worth mentioning."""
        return self.source == PLAIN

    @cached_property
    def _compiled(self) -> Template:
        return rendering.compiled(self.source)

    def render(self, messages: Sequence[Mapping[str, str]], *, max_chars: int = _MOST_CHARS) -> str:
        """Return the text up to where the assistant speaks; a model's template only in a process that is confined.

        InputError if the template does not take these messages, or makes a longer text of them.
        """
        try:
            return rendering.rendered(self._compiled, messages, self.specials, max_chars)
        # A template may fail with anything, and what it fails on are the messages.
        except Exception as error:
            reason = str(error)[:1000] or type(error).__name__
            raise InputError(f"the model's chat template does not take these messages: {reason}") from None


def check(source: object) -> None:
    """Compile a template in a process of its own; ValueError if it is none, or takes too much time or memory."""
    if not isinstance(source, str):
        raise ValueError("it must be a text")
    command = [sys.executable, "-P", rendering.__file__]
    done = subprocess.run(command, input=json.dumps(source).encode(), capture_output=True, timeout=_START_S)
    if done.returncode:
        raise ValueError(f"it took longer than {rendering.COMPILE_S:g} s of a CPU, or more memory than it may have")
    if done.stdout:
        raise ValueError(json.loads(done.stdout))
