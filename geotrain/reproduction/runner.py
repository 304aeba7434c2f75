"""Experiments one after the other; what was found is kept, so that a run that was ended goes on where it was."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import geotrain
from geotrain import interrupts
from geotrain.errors import RunError
from geotrain.files import Document, read_text, write_text
from geotrain.reproduction.experiment import EXPERIMENTS, Experiment, load, path_of
from geotrain.reproduction.finding import Finding
from geotrain.reproduction.kinds import KINDS
from geotrain.reproduction.verdict import Verdict, judge


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an experiment found."""

    name: str
    experiment: Experiment
    findings: tuple[Finding, ...]
    took_s: float
    quick: bool
    missing: str = ""
    """Why there is nothing, or not all."""
    kept: bool = False
    """By an earlier run."""

    @property
    def verdicts(self) -> list[Verdict]:
        """Of its claims."""
        return [judge(claim, self.findings) for claim in self.experiment.claims]


def play(
    name: str, out: Path, *, quick: bool = False, fresh: bool = False, watch: Callable[[int], None] = lambda _: None
) -> Outcome:
    """What the experiment found before, or finds now; its files and results are kept in `out`.

    `watch` is told how many numbers there are, whenever there is another. Ctrl-C keeps nothing of this experiment: a
    search that it ended has found something else than one that came to its end.
    """
    result, key = out / "results" / f"{name}.json", _key(name, quick=quick)
    kept = None if fresh else _kept(result, key)
    if kept is not None:
        return _outcome(name, kept, quick=quick, kept=True)
    began_s, missing = time.monotonic(), ""
    experiment = load(name)
    files = out / "plans" / name
    shutil.rmtree(files, ignore_errors=True)
    found = []
    try:
        for finding in KINDS[experiment.kind](**experiment.arguments(quick=quick)):
            interrupts.check()
            _write(files, finding)
            found.append(finding.at(str(files)).dump())
            watch(len(found))
    except RunError as error:
        missing = str(error)
    data = {"key": key, "took_s": time.monotonic() - began_s, "missing": missing, "findings": found}
    write_text(result, json.dumps(data, indent=1))
    return _outcome(name, data, quick=quick)


def _outcome(name: str, data: Mapping[str, Any], *, quick: bool, kept: bool = False) -> Outcome:
    return Outcome(
        name=name,
        experiment=load(name),
        findings=tuple(map(Finding.read, data["findings"])),
        took_s=data["took_s"],
        quick=quick,
        missing=data["missing"],
        kept=kept,
    )


def _kept(path: Path, key: str) -> dict[str, Any] | None:
    """What an earlier run found; nothing if it was another question, another code, or could not be measured."""
    if not path.exists():
        return None
    try:
        data: dict[str, Any] = json.loads(read_text(path))
    except json.JSONDecodeError:
        return None
    return data if data.get("key") == key and not data["missing"] else None


def _write(directory: Path, finding: Finding) -> None:
    for name, document in _files(finding):
        path, text = directory / name, yaml.safe_dump(document.dump(), sort_keys=False)
        if path.exists():
            assert path.read_text(encoding="utf-8") == text, f"{path} is two different files"
        else:
            write_text(path, text)


def _files(finding: Finding) -> Iterator[tuple[str, Document]]:
    for source in finding.sources:
        yield from source.files.items()


def _key(name: str, *, quick: bool) -> str:
    """The same question to the same code."""
    said = f"{geotrain.__version__} {_code()} {quick} {read_text(path_of(name))}"
    return hashlib.sha256(said.encode()).hexdigest()


@cache
def _code() -> str:
    """Everything that decides what is found: the package, source and data."""
    return _digest(Path(geotrain.__file__).parent)


def _digest(package: Path) -> str:
    """Of all its files but the experiments: each of those decides about itself only."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        within = path.relative_to(package)
        if path.is_file() and not {"__pycache__", EXPERIMENTS.name} & set(within.parts):
            digest.update(str(within).encode() + path.read_bytes())
    return digest.hexdigest()
