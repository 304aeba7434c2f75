"""Traces made up with the published statistics of real ones, for where the real ones cannot be had.

Within 1%: rate, duration, mean, median, p90, p99 and maximum of the input tokens. Near: the most arrivals in
one second, the mean of the output tokens, the share of prefix blocks seen before. All else is plain chance: requests
have no daily rhythm, and their lengths no order.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geotrain.errors import InputError
from geotrain.hints import hint
from geotrain.prefill.request import BLOCK_TOKENS, Request
from geotrain.prefill.trace.reader import read_trace
from geotrain.prefill.trace.trace import Trace
from geotrain.timeline import Floats, Ints

_RECENT = 1000
"""Requests within which a prefix is taken up again."""


@dataclass(frozen=True, kw_only=True)
class _Statistics:
    """What is known of a trace."""

    files: tuple[str, ...]
    """Names under which the real one is found."""
    num_requests: int
    duration_s: float
    dispersion: float
    """Variance of the arrivals in a second over their mean: 1 would be plain chance. Chosen to lead to the peak."""
    mean: float
    p50: float
    p90: float
    p99: float
    most: float
    """Of the input tokens."""
    output_mean: float
    reused: float = 0.0
    """Share of the prefix blocks that an earlier request has too."""
    peak: float = math.inf
    """Most arrivals in one second, where that is known."""


_KNOWN = {
    "azure-conversation": _Statistics(
        files=("azure_llm_2023_conversation.csv", "AzureLLMInferenceTrace_conv.csv"),
        num_requests=19366, duration_s=3502, dispersion=1.1, peak=16,
        mean=1155, p50=1020, p90=2735, p99=4142, most=14050, output_mean=211,
    ),
    "azure-code": _Statistics(
        files=("azure_llm_2023_code.csv", "AzureLLMInferenceTrace_code.csv"),
        num_requests=8819, duration_s=3436, dispersion=14, peak=67,
        mean=2048, p50=1469, p90=5194, p99=7436, most=7437, output_mean=28,
    ),
    "mooncake-conversation": _Statistics(
        files=("mooncake_conversation.jsonl", "conversation_trace.jsonl"),
        num_requests=12031, duration_s=3537, dispersion=1.1,
        mean=12035, p50=6909, p90=27367, p99=85401, most=126195, output_mean=343, reused=0.366,
    ),
}  # fmt: skip


def find_trace(folder: Path | None, name: str) -> Trace:
    """The real trace if the folder has it, else one made up."""
    known = _statistics(name)
    paths = [folder / file for file in known.files] if folder else []
    return next((read_trace(path) for path in paths if path.exists()), None) or generate(name)


def generate(name: str, *, seed: int = 0) -> Trace:
    """The same for the same seed."""
    known = _statistics(name)
    luck = np.random.default_rng(seed)
    arrivals_s = _arrivals(known, luck)
    inputs = luck.permutation(_tokens(known))
    outputs = luck.geometric(1 / known.output_mean, known.num_requests)
    blocks = _blocks(inputs, known.reused, luck) if known.reused else [()] * known.num_requests
    columns = zip(arrivals_s.tolist(), inputs.tolist(), outputs.tolist(), blocks, strict=True)
    return Trace(
        name=f"{name} (made up)",
        requests=tuple(
            Request(id=i, arrival_s=arrival_s, input_tokens=tokens, output_tokens=output, blocks=prefix)
            for i, (arrival_s, tokens, output, prefix) in enumerate(columns)
        ),
    )


def _statistics(name: str) -> _Statistics:
    if name not in _KNOWN:
        raise InputError(f"{name!r} is not a known trace: {hint(name, _KNOWN)}")
    return _KNOWN[name]


def _arrivals(known: _Statistics, luck: np.random.Generator) -> Floats:
    """Chance arrivals at a rate that is drawn anew each second, and bounded: a capped negative binomial."""
    seconds = math.ceil(known.duration_s)
    rate = known.num_requests / seconds
    rates = np.minimum(luck.gamma(rate / (known.dispersion - 1), known.dispersion - 1, seconds), known.peak)
    counts = luck.multinomial(known.num_requests, rates / rates.sum())
    stamps_s = np.sort(np.repeat(np.arange(seconds), counts) + luck.random(known.num_requests))
    return np.interp(stamps_s, stamps_s[[0, -1]], [0.0, known.duration_s])


def _tokens(known: _Statistics) -> Ints:
    """Input tokens, smallest first: even up to the median, geometric beyond, bent between median and p90."""
    shares = np.linspace(0, 1, known.num_requests)
    logs = np.log([known.p50, known.p90, known.p99, known.most])

    def bent(bend: float) -> Floats:
        middle = (np.clip(shares, 0.5, 0.9) - 0.5) / 0.4
        upper = np.where(
            shares < 0.9, logs[0] + (logs[1] - logs[0]) * middle**bend, np.interp(shares, [0.9, 0.99, 1], logs[1:])
        )
        return np.where(shares < 0.5, np.maximum(1, 2 * shares * known.p50), np.exp(upper))

    less, more = 0.1, 10.0
    for _ in range(50):
        bend = (less + more) / 2
        less, more = (bend, more) if bent(bend).mean() > known.mean else (less, bend)
    return np.rint(bent(less)).astype(np.int64)


def _blocks(inputs: Ints, reused: float, luck: np.random.Generator) -> list[tuple[int, ...]]:
    """Prompts that take up the prefix of a recent one whenever too few blocks were reused so far."""
    prefixes: list[tuple[int, ...]] = []
    total = known = 0
    for number, size in enumerate(np.ceil(inputs / BLOCK_TOKENS).astype(int).tolist()):
        shared: tuple[int, ...] = ()
        if number and known < reused * total:
            # The last block is the prompt's own: something new is always asked.
            shared = prefixes[max(0, number - 1 - int(luck.integers(_RECENT)))][: size - 1]
        fresh = total - known
        prefixes.append((*shared, *range(fresh, fresh + size - len(shared))))
        total, known = total + size, known + len(shared)
    return prefixes
