"""The timeline of a page: spans as compact columns, which timeline.js draws."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from string import Template
from typing import Any

import numpy as np

from geotrain.action import Kind
from geotrain.reports.html.asset import asset
from geotrain.reports.words import KIND_WORDS
from geotrain.timeline import Floats, Ints

# What spans can be, after the kinds of action: name on screen and name of its colour in page.css.
_ACTIONS = [(KIND_WORDS[kind], KIND_WORDS[kind].replace(" ", "-")) for kind in Kind]
_OTHERS = [
    ("all-reduce", "all-reduce"),
    ("optimizer", "optimizer"),
    ("activation", "activation"),
    ("gradient", "gradient"),
    ("prefill", "prefill"),
]
KINDS = _ACTIONS + _OTHERS
ALL_REDUCE, OPTIMIZER, ACTIVATION, GRADIENT, PREFILL = range(len(_ACTIONS), len(KINDS))
_TICKS = 2**32 - 1


@dataclass(frozen=True, kw_only=True)
class Gantt:
    """What timeline.js needs: a description for JSON, and the columns as base64."""

    description: dict[str, Any]
    columns: str


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Columns of one track."""

    start_s: Floats
    end_s: Floats
    kind: Ints
    """Numbers of KINDS."""
    microbatch: Ints
    other: Ints
    """Chunk of an action, pipeline of a transfer, tokens of a prefill."""


def packed(spans: Sequence[Spans], length_s: float, about: dict[str, Any]) -> Gantt:
    """The tracks' columns of start, length, microbatch, other and kind, one after the other."""
    start = _ticks(np.concatenate([part.start_s for part in spans]), length_s)
    end = _ticks(np.concatenate([part.end_s for part in spans]), length_s)
    microbatch, other, kind = (
        np.concatenate([getattr(part, name) for part in spans]) for name in ("microbatch", "other", "kind")
    )
    columns = [start.astype("<u4"), (end - start).astype("<u4"), microbatch.astype("<u4"), other.astype("<u2")]
    data = b"".join(column.tobytes() for column in [*columns, kind.astype("u1")])
    used = set(np.unique(kind).tolist())
    description = {
        "step": float(length_s),
        "ticks": _TICKS,
        "spans": len(start),
        "kinds": [
            {
                "name": name,
                "colour": colour,
                "used": number in used,
                "letter": Kind(number).name if number < len(Kind) else "",
            }
            for number, (name, colour) in enumerate(KINDS)
        ],
        **about,
    }
    return Gantt(description=description, columns=base64.b64encode(data).decode("ascii"))


def _ticks(seconds: Floats, length_s: float) -> Ints:
    scaled = np.rint(seconds / length_s * _TICKS) if length_s > 0 else np.zeros(len(seconds))
    return np.clip(scaled, 0, _TICKS).astype(np.int64)


def timeline(picture_text: str, note: str = "") -> str:
    """The section that the scripts draw the page's picture in."""
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    return Template(asset(__package__, "timeline.html")).substitute(picture_text=escape(picture_text), note=said)
