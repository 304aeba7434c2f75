"""Chat templates, compiled and rendered; run as a script, it checks one and knows nothing else of geotrain.

A template is a program from outside. It runs in Jinja's sandbox, in a process that has called `confine`, so that it can
neither go on for ever nor take all memory: a timer ends the process in the middle of whatever it does. The timer counts
the CPU's time, so it does not mind a busy machine.
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

MEMORY_BYTES = 1 << 30
COMPILE_S = 2.0


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


def confine() -> None:
    """Bound the memory of this process, and have it end when the time of `allow` is over."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def allow(cpu_s: float) -> None:
    """Let this process use so much time of a CPU from now on; 0 lifts the limit."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def main() -> None:
    """Compile the template that stdin has as JSON; print why that cannot be done, or nothing."""
    source = json.load(sys.stdin)
    confine()
    allow(COMPILE_S)
    try:
        compiled(source)
    except Exception as error:
        sys.stdout.write(json.dumps(str(error)[:1000] or type(error).__name__))


if __name__ == "__main__":
    main()
