"""What the planner says: more data centers, a smaller second one, what should cross, money against time."""

from collections.abc import Iterator, Sequence

from geotrain.cluster import Cluster
from geotrain.planner import Across, Answer, Ask, find_plan
from geotrain.planner.pareto import with_frontier
from geotrain.reproduction.finding import Finding, Source, Value, command, file_of, name_of
from geotrain.reproduction.settings import large_cluster, large_job
from geotrain.workload import Job

_ACROSS: dict[Across, str] = {"pipeline": "activations", "data": "gradients"}


def _asked(cluster: Cluster, job: Job, across: Across, **row: Value) -> tuple[Answer, Source]:
    answer = find_plan(cluster, job, Ask(across=across))
    return answer, _source(cluster, job, row, ".tokens_per_s", "--across", across)


def _source(cluster: Cluster, job: Job, row: dict[str, Value], read: str, *options: str) -> Source:
    names = [f"{name_of(row)}-{what}.yaml" for what in ("cluster", "job")]
    said = command("plan", *map(file_of, names), *options, read=read)
    return Source(command=said, files=dict(zip(names, (cluster, job), strict=True)))


def _relative(answers: Sequence[tuple[dict[str, Value], Answer, Source]]) -> Iterator[Finding]:
    """Tokens per second over those of the first."""
    _, first, origin = answers[0]
    for row, answer, source in answers:
        gain = answer.best.result.tokens_per_s / first.best.result.tokens_per_s
        yield Finding(row=row, figure="tokens/s over the first", value=gain, unit="x", sources=(source, origin))
        yield Finding(row=row, figure="GPUs in use", value=answer.best.result.plan.num_gpus, sources=(source,))


def datacenters(*, gpus: int, counts: Sequence[int], microbatches: int) -> Iterator[Finding]:
    """One data center of so many GPUs, then more."""
    answers = []
    for across, words in _ACROSS.items():
        for number in counts:
            row: dict[str, Value] = {"data centers": number, "crossing": words}
            answers.append((row, *_asked(large_cluster([gpus] * number), large_job(microbatches), across, **row)))
    yield from _relative(answers)


def fractions(*, gpus: int, shares: Sequence[float], microbatches: int) -> Iterator[Finding]:
    """A second data center that is a fraction of the first."""
    answers = []
    for across, words in _ACROSS.items():
        for share in shares:
            row: dict[str, Value] = {"second over first": share, "crossing": words}
            cluster = large_cluster([gpus, int(gpus * share)])
            answers.append((row, *_asked(cluster, large_job(microbatches), across, **row)))
    yield from _relative(answers)


def across(*, gpus: int, gradient_gb: Sequence[float], microbatches: int) -> Iterator[Finding]:
    """Two data centers, ever larger gradients: activations or gradients over the WAN."""
    for size_gb in gradient_gb:
        both = {}
        job = large_job(microbatches, gradient_bytes=size_gb * 1e9)
        for way, words in _ACROSS.items():
            row: dict[str, Value] = {"gradient GB per stage": size_gb, "crossing": words}
            both[words] = _asked(large_cluster([gpus] * 2), job, way, **row)
        (pipelines, one), (data, two) = both["activations"], both["gradients"]
        yield Finding(
            row={"gradient GB per stage": size_gb},
            figure="activations over gradients, tokens/s",
            value=pipelines.best.result.tokens_per_s / data.best.result.tokens_per_s,
            unit="x",
            sources=(one, two),
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
