"""What scripts for other machines have in common: names, the plan as one file, what a node runs."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from geotrain.errors import InputError
from geotrain.files import write_text
from geotrain.plan import Plan
from geotrain.seating import Seat, Seating
from geotrain.training.launch.launch import JOB, Launch, train_options
from geotrain.training.launch.process import ENVIRONMENT, STORE, Process, agent_options

PLAN_FILE = "plan.yaml"
_LONGEST_NAME = 40


@dataclass(frozen=True, kw_only=True)
class Words:
    """What a place calls its files and addresses, in words that a shell there fills in."""

    plan: str
    data: str
    out: str
    keys: str
    control: str | None
    """HOST:PORT, as other data centers know it."""
    run_id: str


def node_processes(launch: Launch, words: Words) -> Iterator[Process]:
    """What the nodes run. The shell knows its node's `name`, `host`, number of `workers`, and where all meet."""
    seating = launch.seating
    for dc in seating.dcs:
        nodes = seating.nodes(dc)
        agent = agent_options(
            nodes=len(nodes),
            workers="$workers",
            store=f"${STORE}",
            run_id=words.run_id,
            name="$name",
            max_restarts=launch.max_restarts,
        )
        worker = train_options(
            dc,
            plan=words.plan,
            data=None if launch.data is None else words.data,
            out=words.out,
            # The leader listens at the address that it has itself.
            control=None if words.control is None else _at(words.control, "$host" if dc == seating.dcs[0] else None),
            host="$host",
            keys=None if launch.insecure else words.keys,
        )
        for number, seats in enumerate(nodes):
            yield Process(
                dc=dc,
                node=number,
                host="",
                seats=seats,
                agent=["torchrun", *agent],
                worker=["geotrain", "train", *worker, *launch.options],
                environment=ENVIRONMENT,
            )


def _at(address: str, host: str | None) -> str:
    given, _, port = address.rpartition(":")
    return f"{host or given}:{port}"


def check_control(seating: Seating, control: str | None) -> str | None:
    """The control address, if one is needed; InputError if it is missing or none."""
    if len(seating.dcs) == 1:
        return None
    if control is None:
        where = f"where {', '.join(seating.dcs[1:])} can reach the first process of {seating.dcs[0]}"
        raise InputError(f"--control HOST:PORT is missing: {where}")
    host, _, port = control.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"--control is {control!r} and must be HOST:PORT")
    return control


def slugs(seating: Seating) -> dict[str, str]:
    """The names of data centers as parts of file names and DNS labels; InputError if two are the same."""
    names = {dc: re.sub(r"[^a-z0-9]+", "-", dc.lower()).strip("-") for dc in seating.dcs}
    for dc, name in names.items():
        if not 0 < len(name) <= _LONGEST_NAME or list(names.values()).count(name) > 1:
            rule = f"1 to {_LONGEST_NAME} letters and digits, and another than all others"
            raise InputError(f"the data center's name is {dc!r} and must be {rule}")
    return names


def plan_text(plan: Plan) -> str:
    """The plan in one file, cluster and job included."""
    return yaml.safe_dump(plan.dump(), sort_keys=False)


def keys_command(seating: Seating) -> str:
    """Makes the keys of all processes."""
    return f"geotrain keys keys --job {JOB} --nodes {','.join(seat.name for seat in seating.seats)}"


def shell(words: Iterable[str]) -> list[str]:
    """Each word as a shell reads it back, which fills in variables such as $RUN."""
    return [_expanded(word) if re.match(r"[\w=]*\$\w", word) else shlex.quote(word) for word in words]


def _expanded(word: str) -> str:
    return '"' + re.sub(r'(["\\`])', r"\\\1", word) + '"'


def folded(words: Iterable[str], *, indent: int) -> str:
    """A command over several lines, an option on each."""
    text, margin = "", " " * (indent + 4)
    for word in words:
        text += f" \\\n{margin}{word}" if word.startswith("--") else f" {word}"
    return text.lstrip()


def workers_lines(nodes: Sequence[Sequence[Seat]], number: str) -> list[str]:
    """Shell lines that set `workers`: the last node may have fewer than the others."""
    counts = [len(seats) for seats in nodes]
    fewer = [f"if (({number} == {len(counts) - 1})); then", f"    workers={counts[-1]}", "fi"]
    return [f"workers={counts[0]}", *(fewer if counts[-1] != counts[0] else [])]


def seat_words(seat: Seat) -> str:
    """What a process is."""
    part = f", part {seat.part}" if seat.part else ""
    return f"{seat.name} (stage {seat.stage}, pipeline {seat.pipeline}{part})"


def write(directory: Path, files: dict[str, str]) -> None:
    """Write the files; those that are scripts can be run."""
    for name, text in files.items():
        write_text(directory / name, text)
        if text.startswith("#!"):
            (directory / name).chmod(0o755)
