"""What all reports say in the same words: labels, the plan in a sentence, the headline figures.

Knows Results and text; knows no terminal, HTML or file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from geotrain.action import Kind
from geotrain.plan import Plan
from geotrain.simulation.result import Result, StageMemory, TimeShare
from geotrain.units import format_bytes, format_count, format_seconds, plural

KIND_WORDS = {
    Kind.F: "forward",
    Kind.R: "recompute",
    Kind.B: "backward",
    Kind.I: "input gradient",
    Kind.W: "weight gradient",
}


@dataclass(frozen=True, kw_only=True)
class Share:
    """One entry of a TimeShare, with its name on screen and its letter in a text bar."""

    key: str
    label: str
    letter: str
    value: float


_SHARES = [
    ("forward", "forward", "F"),
    ("recompute", "recompute", "R"),
    ("backward", "backward", "B"),
    ("optimizer", "optimizer", "O"),
    ("all_reduce", "all-reduce", "A"),
    ("wan", "waiting for the WAN", "w"),
    ("fabric", "waiting for the fabric", "f"),
    ("pipeline", "waiting for neighbours", "."),
]


def shares(time_share: TimeShare) -> list[Share]:
    """Where the time went, work first; entries that are zero are kept, so that all reports have the same rows."""
    return [
        Share(key=key, label=label, letter=letter, value=getattr(time_share, key)) for key, label, letter in _SHARES
    ]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A headline figure: `step time`, `449 ms`, and what to know about it."""

    label: str
    value: str
    note: str = ""


def headline(result: Result) -> list[Figure]:
    """The figures people ask for first; money only where something has a price."""
    plan = result.plan
    figures = [
        Figure(label="step time", value=format_seconds(result.step_time_s), note=_step_note(plan)),
        Figure(
            label="lower bound",
            value=format_seconds(result.bound.total_s),
            note=f"step is {result.step_over_bound:.3f} x the bound; binding: {result.bound.binding}",
        ),
        Figure(
            label="GPU utilization",
            value=percent(result.gpu_utilization),
            note=f"bubbles take {percent(result.bubble_fraction)}",
        ),
        Figure(label="MFU", value=percent(result.mfu), note="model FLOPs over peak, recompute not counted"),
        Figure(
            label="tokens/s", value=count(result.tokens_per_s), note=f"{count(plan.tokens_per_step)} tokens per step"
        ),
        Figure(label="GPUs", value=f"{plan.num_gpus}", note=_gpus_note(plan)),
    ]
    total = result.gpu_cost + result.egress_cost
    if total > 0:
        parts = f"GPUs {money(result.gpu_cost)} + egress {money(result.egress_cost)}"
        per_billion = money(result.cost_per_billion_tokens)
        figures += [
            Figure(label="cost per step", value=money(total), note=parts),
            Figure(label="cost per billion tokens", value=per_billion, note="GPUs and egress"),
        ]
    return figures


def plan_sentence(plan: Plan) -> str:
    """The plan as one would say it."""
    model = plan.job.model
    used = datacenters(plan)
    where = f"over {plural(len(used), 'data center')} ({', '.join(used)})"
    if plan.replicas:
        again = ", ".join(replica.dc for replica in plan.replicas)
        where = f"inside {used[0]} and again in {again}, data parallel across"
    num_cells = plan.num_pipelines // plan.pipelines_per_cell
    cells = f" in {plural(num_cells, 'cell')}" if num_cells > 1 else ""
    return (
        f"{model.name} ({plural(model.layers, 'layer')}, {count(model.parameters)} parameters) in "
        f"{plural(len(plan.stages), 'stage')} {where}, {plural(plan.num_pipelines, 'pipeline')}{cells} of "
        f"{plural(plan.num_microbatches, 'microbatch')}, schedule {plan.schedule}."
    )


def datacenters(plan: Plan) -> list[str]:
    """Names of the data centers in use, in the order of the stages."""
    return list(dict.fromkeys(stage.dc for stage in plan.stages))


def _step_note(plan: Plan) -> str:
    microbatches = plural(plan.num_microbatches, "microbatch")
    return f"{microbatches} x {plural(plan.num_pipelines, 'pipeline')}"


def _gpus_note(plan: Plan) -> str:
    tensor = f" x {plan.tensor_parallel} GPUs each" if plan.tensor_parallel > 1 else ""
    return f"{plural(len(plan.stages), 'stage')} x {plural(plan.num_pipelines, 'pipeline')}{tensor}"


def percent(fraction: float) -> str:
    """42.2%."""
    return f"{fraction:.1%}"


def money(amount: float) -> str:
    """An amount in the currency of the cluster file's prices."""
    return f"{amount:,.2f}" if amount >= 100 else f"{amount:.4g}"


def used_of_limit(memory: StageMemory) -> str:
    """42.5 / 80 GiB."""
    used, limit = format_bytes(memory.total_bytes).split(), format_bytes(memory.limit_bytes).split()
    return f"{used[0] if used[1] == limit[1] else ' '.join(used)} / {' '.join(limit)}"


def count(number: float) -> str:
    """A large count for people: 109k, 7.25B; 10 is 10."""
    return format_count(number)


def gains(result: Result) -> list[tuple[str, str, str, str]]:
    """How the `auto` search came to its schedule: idea, step, multiple of the bound, shorter by."""
    rows = []
    before = None
    for gain in result.gains:
        shorter = "" if before is None else f"{1 - gain.step_s / before:.1%}"
        rows.append((gain.idea, format_seconds(gain.step_s), f"{gain.step_s / result.bound.total_s:.3f}", shorter))
        before = gain.step_s
    return rows


def ranges(numbers: Sequence[int]) -> str:
    """Runs of numbers: 0-19, 40."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
