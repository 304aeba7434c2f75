"""What the options of `geotrain prefill simulate` mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geotrain.prefill.trace import Trace
    from geotrain.simulation.prefill.scene import Scene
    from geotrain.workload import Model

_RATE = re.compile(r"(x?)(\d+\.?\d*|\.\d+)(/s)?")
_KILL = re.compile(r"(\d{1,6})@(.+)")
Progress = Callable[[str, float], None]


def read(text: str, *, seed: int) -> Trace:
    """The trace of that file, or one made up of that name."""
    from geotrain.errors import InputError
    from geotrain.prefill.trace import generate, read_trace

    path = Path(text)
    if path.exists() or path.suffix or len(path.parts) > 1:
        return read_trace(path)
    try:
        return generate(text, seed=seed)
    except InputError as error:
        raise InputError(f"{text}: no such file; {error}") from None


def parse_rate(text: str) -> Callable[[Trace, Scene], Trace]:
    """What brings a trace to the rate wished for."""
    from geotrain.errors import InputError
    from geotrain.simulation.prefill.scene import saturating_rps

    if text == "max":
        return lambda trace, scene: trace.at_rate(saturating_rps(scene, trace))
    match = _RATE.fullmatch(text.replace(" ", ""))
    if match is None or bool(match[1]) == bool(match[3]) or not float(match[2]) > 0:
        raise InputError(f"--rate is {text!r} and must be like 'x4', '20/s' or 'max'")
    number = float(match[2])
    return lambda trace, _: trace.scaled(number) if match[1] else trace.at_rate(number)


def find_models(names: Sequence[str]) -> tuple[Model, ...]:
    """Of the catalog."""
    from geotrain.errors import InputError
    from geotrain.workload.catalog import find_model

    try:
        return tuple(find_model(name) for name in dict.fromkeys(names))
    except ValueError as error:
        raise InputError(f"--model {', '.join(names)}: {error}") from None


def shared_out(trace: Trace, models: Sequence[Model]) -> Trace:
    """Requests that name no model take turns."""
    from dataclasses import replace

    if len(models) == 1:
        return trace
    named = (replace(one, model=one.model or models[one.id % len(models)].name) for one in trace.requests)
    return replace(trace, requests=tuple(named))


def parse_kill(text: str) -> tuple[int, float]:
    """The slot, and when it dies: `3@60s`."""
    from geotrain.errors import InputError
    from geotrain.units import TIME, parse

    match = _KILL.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--kill is {text!r} and must be SLOT@TIME, like '3@60s'")
    try:
        time_s = parse(match[2], TIME)
    except ValueError as error:
        raise InputError(f"--kill is {text!r} with a time that {error}") from None
    if time_s < 0:
        raise InputError(f"--kill is {text!r} and must not be before 0 s")
    return int(match[1]), time_s


@contextmanager
def followed(*, wanted: bool) -> Iterator[Progress | None]:
    """A bar on stderr for what is under way, on a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not (wanted and console.is_terminal):
        yield None
        return
    with Bar(console=console, transient=True) as bar:
        task = bar.add_task("playing", total=1.0)
        yield lambda what, share: bar.update(task, description=f"playing {what}", completed=share)
