"""An experiment as its file says it: the question, the inputs, what is claimed, and what would confirm it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from geotrain.errors import InputError
from geotrain.files import Document, Number
from geotrain.hints import hint
from geotrain.reproduction.finding import Finding, Value

EXPERIMENTS = Path(__file__).parents[1] / "experiments"

Trust = Literal["page", "memory", "derived", "none"]
"""page: read in the published text. memory: remembered, unverified. derived: arithmetic from such figures. none: an
aim of our own."""


class Ours(Document):
    """Which of the findings stands beside the claim."""

    figure: str
    where: dict[str, str | float] = Field(default_factory=dict)
    """Only findings at such settings."""
    take: Literal["only", "max", "min", "median", "share"] = "only"
    """Of several; share: how many of them are at most `limit`."""
    limit: Number | None = None

    def pick(self, findings: Iterable[Finding]) -> list[Finding]:
        """Those that count."""
        wanted = self.where.items()
        return [one for one in findings if one.figure == self.figure and wanted <= dict(one.row).items()]


class Claim(Document):
    """A figure that somebody published, or an aim of our own."""

    says: str
    value: Number
    unit: str = ""
    source: str
    trust: Trust
    ours: Ours
    within: Number | None = None
    """Holds if ours differs by no more than this share."""
    at_least: bool = False
    """Holds if ours is the claimed value or more."""
    at_most: bool = False
    """Holds if ours is the claimed value or less."""

    @model_validator(mode="after")
    def _one_test(self) -> Self:
        if (self.within is not None) + self.at_least + self.at_most != 1:
            raise ValueError(f"the claim {self.says!r} must have one of within, at_least and at_most")
        return self


class Chart(Document):
    """A figure over one thing varied, a line for each value of another."""

    figure: str
    over: str
    by: str | None = None
    where: dict[str, Value] = Field(default_factory=dict)


class Experiment(Document):
    """One question."""

    title: str
    question: str
    part: Literal["published", "beyond", "fidelity"]
    kind: str
    """The function that plays it, in `kinds.py`."""
    inputs: dict[str, Any]
    quick: dict[str, Any] | None = Field(default_factory=dict)
    """Inputs that `--quick` changes; null: `--quick` leaves the experiment out."""
    known: list[str] = Field(default_factory=list)
    """Conditions that were published."""
    guesses: list[str] = Field(default_factory=list)
    """Conditions that are ours, because the published ones are not known."""
    claims: list[Claim] = Field(default_factory=list)
    charts: list[Chart] = Field(default_factory=list)

    def arguments(self, *, quick: bool) -> dict[str, Any]:
        """What the kind is called with."""
        return self.inputs | (self.quick or {} if quick else {})


def names() -> list[str]:
    """All experiments, in the order in which they are told."""
    return [str(name) for name in (EXPERIMENTS / "ORDER").read_text(encoding="utf-8").split()]


def load(name: str) -> Experiment:
    """The experiment of that name."""
    return Experiment.load(path_of(name))


def path_of(name: str) -> Path:
    """Its file."""
    return EXPERIMENTS / f"{name}.yaml"


def chosen(only: Sequence[str], *, quick: bool) -> list[str]:
    """The names asked for, in order; all that `quick` allows if none are."""
    every = names()
    for name in only:
        if name not in every:
            raise InputError(f"--only is {name!r}, which is no experiment: {hint(name, every, otherwise='see --list')}")
        if quick and load(name).quick is None:
            raise InputError(f"--only is {name!r}, which --quick leaves out: it measures on the testbed")
    return [name for name in every if (name in only if only else not quick or load(name).quick is not None)]
