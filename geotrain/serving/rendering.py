"""The process that renders a model's chat template; it is run as a script and knows nothing else of geotrain.

A template is a program from outside. Here it can neither go on for ever nor take all memory: a timer ends the process
in the middle of whatever it does. The timer counts the CPU's time, so it does not mind a busy machine. Lines of JSON
in and out: first the template's source, then conversations.
"""

import json
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MEMORY_BYTES = 1 << 30


class TooLongError(Exception):
    """The text is longer than it may be."""


def compiled(source: str) -> Template:
    """The template, with what transformers gives to templates."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _strftime_now}
    return environment.from_string(source)


def rendered(
    template: Template, messages: Sequence[Mapping[str, str]], specials: Mapping[str, str], max_chars: int
) -> str:
    """The text up to where the assistant speaks; TooLongError as soon as it has more than `max_chars`."""
    pieces, left = [], max_chars
    for piece in template.generate(
        messages=messages, add_generation_prompt=True, tools=None, documents=None, **specials
    ):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise TooLongError(f"the text has more than {max_chars} characters")
    return "".join(pieces)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def main() -> None:
    """Answer every line with `{"text": ...}` or `{"error": ...}`, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    template: Template | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, asked["limit_s"])
        try:
            if template is None:
                template, text = compiled(asked["source"]), ""
            else:
                text = rendered(template, asked["messages"], asked["specials"], asked["max_chars"])
            answer = {"text": text}
        # A template may fail with anything, and what it fails on are the messages.
        except Exception as error:
            answer = {"error": str(error)[:1000] or type(error).__name__}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()
