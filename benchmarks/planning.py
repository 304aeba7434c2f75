"""What the planner says to four questions: `python -m benchmarks.planning` rewrites docs/planning.md and its charts.

One to five data centers; a second one that is a fraction of the first; pipelines or gradients across; and, over random
clusters, what it gains over the published algorithm.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles

from benchmarks.planner import random_gains
from geotrain.planner import Across, Ask
from geotrain.planner.whatif import Exploration, Found, InProcess, Notebook, Point, Row, Setting, plain_grid
from geotrain.reports.planning import whatif_svg
from geotrain.reproduction.settings import large_cluster, large_job
from geotrain.workload import Job

DOCS = Path(__file__).parents[1] / "docs"
_GPUS = 600


def _rows(points: Sequence[Point]) -> list[Row]:
    exploration = Exploration(workers=InProcess(), notebook=Notebook())
    exploration.run(plain_grid(points))
    return exploration.rows


def _point(nodes: Sequence[int], job: Job, across: Across, name: str, text: str, plain: float) -> Point:
    settings = (
        Setting(name=name, text=text, plain=plain),
        Setting(name="across", text="gradients" if across == "data" else "activations", plain=across),
    )
    return Point(settings=settings, cluster=large_cluster(nodes), job=job, ask=Ask(across=across))


def datacenters() -> list[Row]:
    """One to five of 600 GPUs."""
    return _rows(
        [
            _point([_GPUS] * n, large_job(240), across, "data centers", str(n), n)
            for across in ("pipeline", "data")
            for n in range(1, 6)
        ]
    )


def fractions() -> list[Row]:
    """A second data center that is a fraction of the first."""
    return _rows(
        [
            _point([_GPUS, int(_GPUS * share)], large_job(240), across, "second / first", f"{share:.0%}", share)
            for across in ("pipeline", "data")
            for share in (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
        ]
    )


def ways() -> list[Row]:
    """Two data centers, ever larger gradients: what should cross."""
    return _rows(
        [
            _point([_GPUS] * 2, job, across, "gradient bytes per stage", f"{size / 1e9:g} GB", size)
            for across in ("pipeline", "data")
            for size in (0.1e9, 0.3e9, 1e9, 3e9, 6e9, 10e9, 20e9)
            for job in (large_job(8, gradient_bytes=size),)
        ]
    )


def main() -> None:
    """Ask, and write down."""
    gains = random_gains()
    pages = [("datacenters", datacenters()), ("fractions", fractions()), ("ways", ways())]
    for name, rows in pages:
        (DOCS / f"planning-{name}.svg").write_text(whatif_svg(rows), encoding="utf-8")
    (DOCS / "planning.md").write_text("\n".join(_page(dict(pages), gains)), encoding="utf-8")


def _page(pages: dict[str, list[Row]], gains: Sequence[float]) -> Iterator[str]:
    low, *_, high = quantiles(gains, n=20)
    yield "# What the planner says\n"
    yield "Written by `python -m benchmarks.planning`. 600 GPUs (A100) per data center, 40 ms, 5 Gbit/s per pair, 60"
    yield "stages, 240 microbatches, a transfer as long as two forwards, unless said otherwise.\n"
    yield "## Is the next data center worth it\n"
    yield from _table(pages["datacenters"])
    yield "\n![Tokens per second over the number of data centers](planning-datacenters.svg)\n"
    yield "## A second data center that is smaller\n"
    yield "Pipelines across need as many slots of the second as an extra pipeline takes stages there; gradients across"
    yield "need room for a whole pipeline, which a tenth of 600 GPUs just has.\n"
    yield from _table(pages["fractions"])
    yield "\n![Tokens per second over the size of the second data center](planning-fractions.svg)\n"
    yield "## Pipelines across, or gradients\n"
    yield "Two data centers, 8 microbatches. Gradients cross once a step, activations with every microbatch: the larger"
    yield "the model for its activations, the sooner pipelines across win.\n"
    yield from _table(pages["ways"])
    yield "\n![Tokens per second over gradient bytes](planning-ways.svg)\n"
    yield "## Against the published algorithm\n"
    yield f"Tokens per second over what the published algorithm gives, {len(gains)} random clusters of one to five"
    yield "data centers (the algorithm gets every tensor-parallel degree and number of stages we try):\n"
    yield "| least | p5 | median | p95 |\n|---|---|---|---|"
    yield f"| {min(gains):.3f} | {low:.2f} | {median(gains):.2f} | {high:.2f} |\n"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    name = rows[0].point.settings[0].name
    ways = list(dict.fromkeys(row.point.settings[1].text for row in rows))
    yield f"| {name} | " + " | ".join(f"{way} cross" for way in ways) + " |"
    yield "|" + "---|" * (1 + len(ways))
    first = _tokens(rows[0])
    for text in dict.fromkeys(row.point.settings[0].text for row in rows):
        mine = {row.point.settings[1].text: row for row in rows if row.point.settings[0].text == text}
        cells = [f"{_tokens(mine[way]) / first:.3f}x, {_where(mine[way])}" for way in ways]
        yield f"| {text} | " + " | ".join(cells) + " |"


def _tokens(row: Row) -> float:
    return row.outcome.tokens_per_s if isinstance(row.outcome, Found) else 0.0


def _where(row: Row) -> str:
    assert isinstance(row.outcome, Found)
    number = len(row.outcome.datacenters)
    return f"{row.outcome.gpus} GPUs in {number} dc{'s' * (number > 1)}"


if __name__ == "__main__":
    main()
