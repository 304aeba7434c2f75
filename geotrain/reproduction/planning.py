"""What the planner says: more data centers, a smaller second one, what should cross, money against time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from geotrain.cluster import Cluster
from geotrain.planner import Across, Answer, Ask, find_plan
from geotrain.planner.pareto import with_frontier
from geotrain.reproduction.finding import Finding, Source, Value, command, file_of, name_of
from geotrain.reproduction.settings import large_cluster, large_job
from geotrain.workload import Job

_ACROSS: dict[Across, str] = {"pipeline": "activations", "data": "gradients"}


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """An answer of the planner, and where its figures can be had again."""

    row: Mapping[str, Value]
    cluster: Cluster
    job: Job
    across: Across

    @cached_property
    def answer(self) -> Answer:
        return find_plan(self.cluster, self.job, Ask(across=self.across))

    def source(self, read: str) -> Source:
        return _source(self.cluster, self.job, self.row, read, "--across", self.across)

    @property
    def tokens_per_s(self) -> float:
        return self.answer.best.result.tokens_per_s


def _source(cluster: Cluster, job: Job, row: Mapping[str, Value], read: str, *options: str) -> Source:
    names = [f"{name_of(row)}-{what}.yaml" for what in ("cluster", "job")]
    said = command("plan", *map(file_of, names), *options, read=read)
    return Source(command=said, files=dict(zip(names, (cluster, job), strict=True)))


def _relative(asked: Sequence[_Asked]) -> Iterator[Finding]:
    """Tokens per second over those of the first."""
    first, read = asked[0], ".tokens_per_s"
    for one in asked:
        gain, sources = one.tokens_per_s / first.tokens_per_s, (one.source(read), first.source(read))
        yield Finding(row=one.row, figure="tokens/s over the first", value=gain, unit="x", sources=sources)
        gpus = one.answer.best.result.plan.num_gpus
        yield Finding(row=one.row, figure="GPUs in use", value=gpus, sources=(one.source(".gpus"),))


def datacenters(*, gpus: int, counts: Sequence[int], microbatches: int) -> Iterator[Finding]:
    """One data center of so many GPUs, then more."""
    job = large_job(microbatches)
    yield from _relative(
        [
            _Asked(row={"data centers": n, "crossing": words}, cluster=large_cluster([gpus] * n), job=job, across=way)
            for way, words in _ACROSS.items()
            for n in counts
        ]
    )


def fractions(*, gpus: int, shares: Sequence[float], microbatches: int) -> Iterator[Finding]:
    """A second data center that is a fraction of the first."""
    job = large_job(microbatches)
    yield from _relative(
        [
            _Asked(
                row={"second over first": share, "crossing": words},
                cluster=large_cluster([gpus, int(gpus * share)]),
                job=job,
                across=way,
            )
            for way, words in _ACROSS.items()
            for share in shares
        ]
    )


def across(*, gpus: int, gradient_gb: Sequence[float], microbatches: int) -> Iterator[Finding]:
    """Two data centers, ever larger gradients: activations or gradients over the WAN."""
    cluster = large_cluster([gpus] * 2)
    for size_gb in gradient_gb:
        job = large_job(microbatches, gradient_bytes=size_gb * 1e9)
        row: dict[str, Value] = {"gradient GB per stage": size_gb}
        pipelines, data = (
            _Asked(row=row | {"crossing": words}, cluster=cluster, job=job, across=way)
            for way, words in _ACROSS.items()
        )
        yield Finding(
            row=row,
            figure="activations over gradients, tokens/s",
            value=pipelines.tokens_per_s / data.tokens_per_s,
            unit="x",
            sources=(pipelines.source(".tokens_per_s"), data.source(".tokens_per_s")),
        )


def frontier(*, gpus: Sequence[int], prices: Sequence[float], microbatches: int, evaluations: int) -> Iterator[Finding]:
    """Plans that nothing beats in both time and cost, beside the published algorithm's."""
    cluster, job = large_cluster(gpus, prices), large_job(microbatches)
    ask = Ask(evaluations=evaluations)
    answer = with_frontier(cluster, job, find_plan(cluster, job, ask), find_plan)
    options = ("--pareto", "--evaluations", str(evaluations))
    plans = [(f"{number}", f".frontier[{number - 1}]", one) for number, one in enumerate(answer.frontier, start=1)]
    if answer.published is not None:
        plans.append(("published", ".published_algorithm", answer.published))
    for number, path, one in plans:
        for figure, name, value in (
            ("tokens/s", "tokens_per_s", one.result.tokens_per_s),
            ("cost per billion tokens", "cost_per_billion_tokens", one.result.cost_per_billion_tokens),
        ):
            source = _source(cluster, job, {"frontier": "of"}, f"{path}.{name}", *options)
            yield Finding(row={"plan": number}, figure=figure, value=value, sources=(source,))
    if answer.published is not None:
        source = _source(
            cluster, job, {"frontier": "of"}, ".tokens_per_s / .published_algorithm.tokens_per_s", *options
        )
        gain = answer.best.result.tokens_per_s / answer.published.result.tokens_per_s
        yield Finding(row={"plan": "1"}, figure="tokens/s over published", value=gain, unit="x", sources=(source,))
