"""The questions of a what-if: every combination of the varied values, each a cluster and a job to plan for."""

import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from pydantic import ValidationError

from geotrain import __version__
from geotrain.cluster import Cluster
from geotrain.complaints import complaint
from geotrain.errors import InputError
from geotrain.planner.ask import Ask
from geotrain.planner.whatif.address import Address, content_of, find_address
from geotrain.planner.whatif.values import MOST_VALUES, Value, parse_values
from geotrain.workload import Job

Plain = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One thing that was varied, and what it is here."""

    name: str
    text: str
    """As people write it."""
    plain: Plain
    """As programs read it: SI numbers; None is unlimited."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One question to the planner."""

    settings: tuple[Setting, ...]
    cluster: Cluster
    job: Job
    ask: Ask
    order: float = 0.0
    """Tables show small ones first; equals stay as they came."""

    @cached_property
    def key(self) -> str:
        """The same for the same question to the same version, whatever it is called."""
        asked = [__version__, content_of(self.cluster), content_of(self.job), asdict(self.ask)]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One `--vary`."""

    path: str
    address: Address
    values: tuple[Value, ...]


def parse_axis(text: str, cluster: Cluster, job: Job) -> Axis:
    """`PATH=VALUES`; every value is tried on its own, so that a wrong one is named with its flag."""
    path, equals, listed = (part.strip() for part in text.partition("="))
    if not equals or not path:
        raise InputError(f"--vary {text}: must be PATH=VALUES, such as 'wan.default.rtt=10,20,40ms'")
    address = find_address(path, cluster, job)
    try:
        axis = Axis(path=path, address=address, values=parse_values(listed))
    except ValueError as error:
        raise InputError(f"--vary {text}: {error}") from None
    for value in axis.values:
        _point(cluster, job, Ask(), [(axis, value)])
    return axis


def grid(cluster: Cluster, job: Job, axes: Sequence[Axis], ask: Ask) -> list[Point]:
    """All combinations; the last axis changes fastest."""
    for first, second in itertools.combinations(axes, 2):
        if first.address.excludes(second.address):
            raise InputError(f"--vary {first.path} and --vary {second.path} set the same thing: give only one of them")
    number = math.prod(len(axis.values) for axis in axes)
    if number > MOST_VALUES:
        raise InputError(f"--vary asks for {number} combinations and must ask for at most {MOST_VALUES}")
    combinations = itertools.product(*([(axis, value) for value in axis.values] for axis in axes))
    return [_point(cluster, job, ask, combination) for combination in combinations]


def _point(cluster: Cluster, job: Job, ask: Ask, chosen: Sequence[tuple[Axis, Value]]) -> Point:
    flags = " ".join(f"--vary {axis.path}={value.text}" for axis, value in chosen)
    cluster_content, job_content = content_of(cluster), content_of(job)
    for axis, value in chosen:
        axis.address.put(job_content if axis.address.in_job else cluster_content, value.content)
    document: type[Cluster | Job] = Cluster
    try:
        varied_cluster = Cluster.model_validate(cluster_content, by_name=False)
        document = Job
        varied_job = Job.model_validate(job_content, by_name=False)
    except ValidationError as error:
        raise InputError(f"{flags}: {complaint(error, document)}") from None
    settings = [
        Setting(
            name=axis.path,
            text=value.text,
            plain=_plain(axis.address.get(content_of(varied_job if axis.address.in_job else varied_cluster)), value),
        )
        for axis, value in chosen
    ]
    return Point(settings=tuple(settings), cluster=varied_cluster, job=varied_job, ask=ask)


def _plain(found: object, value: Value) -> Plain:
    """A catalog entry goes by its name."""
    return found if found is None or isinstance(found, str | int | float | bool) else value.text
