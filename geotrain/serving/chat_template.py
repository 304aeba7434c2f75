"""A conversation as one text: the model's own Jinja template, or a plain one.

Templates come with models, so they run in Jinja's sandbox. They get what transformers gives them: `messages`,
`add_generation_prompt`, the special tokens, `raise_exception` and `strftime_now`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from geotrain.errors import InputError

PLAIN = "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content }}\n\n{% endfor %}Assistant:"
"""For models that bring none: `User: ...`, a blank line, and so on up to `Assistant:`."""


class ChatTemplate:
    """One template, compiled."""

    def __init__(self, source: str = PLAIN, *, specials: Mapping[str, str] | None = None) -> None:
        """ValueError if it cannot be compiled. `specials` are the texts of tokens such as bos_token."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _strftime_now}
        try:
            self._template = environment.from_string(source)
        except (TemplateError, TypeError) as error:
            raise ValueError(str(error)) from None
        self._specials = dict(specials or {})

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The text up to where the assistant speaks; InputError if the template does not take these messages."""
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=True, tools=None, documents=None, **self._specials
            )
        # A template is a program: it may fail with anything, and what it fails on are the messages.
        except Exception as error:
            raise InputError(f"the model's chat template does not take these messages: {error}") from None


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
