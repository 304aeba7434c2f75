"""What `geotrain plan` says: the plan, where it is, the published algorithm beside it, and what else was tried.

Fits 80 columns.
"""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from geotrain.planner.answer import Answer, Scored
from geotrain.planner.explain import Worth, next_datacenter
from geotrain.planner.use import kind_of, num_cells, unused_datacenters, used_datacenters, uses
from geotrain.reports.textbars import figure_table
from geotrain.reports.words import count, money, percent, ranges
from geotrain.runnable import why_not_runnable
from geotrain.units import days, format_bytes, format_seconds, plural

_MOST_OTHERS = 8


def answer_table(answer: Answer, worths: tuple[Worth, ...], runnable: Scored | None = None) -> RenderableType:
    """Everything a person wants to know about the choice, top down."""
    parts: list[RenderableType] = [
        Text(plan_heading(answer.best), style="bold"),
        Padding(_figures(answer), (1, 0, 0, 0)),
        Padding(_layout(answer.best), (1, 0, 0, 0)),
        Padding(_datacenters(answer.best, worths), (1, 0, 0, 0)),
    ]
    if answer.others:
        parts.append(Padding(_others(answer), (1, 0, 0, 0)))
    parts.append(Text("\nThe next data center: " + next_datacenter(worths)))
    parts += [Text(sentence) for sentence in training_sentences(answer.best, runnable)]
    parts.append(Text(search_sentence(answer)))
    return Group(*parts)


def training_sentences(best: Scored, runnable: Scored | None) -> list[str]:
    """Why `geotrain train` cannot run the plan, and the best that it can; empty where it can run this one."""
    reasons = why_not_runnable(best.result.plan)
    if not reasons:
        return []
    sentences = [f"Not runnable by `geotrain train`: {'; '.join(reasons)}."]
    if runnable is not None:
        plan, lost = runnable.result.plan, best.s_per_token / runnable.s_per_token - 1
        how = "; --across pipeline finds it" if best.result.plan.replicas and not plan.replicas else ""
        sentences.append(
            f"The best that is: {kind_of(plan)} on {plural(plan.num_gpus, 'GPU')}, a step of "
            f"{format_seconds(runnable.result.step_time_s)}, {lost:+.1%} tokens/s{how}."
        )
    return sentences


def plan_heading(best: Scored) -> str:
    """The plan in a line."""
    plan = best.result.plan
    model = f"{plan.job.model.name} ({count(plan.job.model.parameters)} parameters)"
    return f"{model} on {plural(plan.num_gpus, 'GPU')}, {kind_of(plan)}"


def figure_rows(answer: Answer) -> list[tuple[str, str, str, str]]:
    """Figure, this plan, the published algorithm's, and what is gained."""
    best, published = answer.best, answer.published
    rows = []
    for (name, mine), (_, theirs) in zip(_figures_of(answer, best), _figures_of(answer, published), strict=True):
        rows.append((name, mine, theirs, _gain(name, answer)))
    return rows


def _figures_of(answer: Answer, scored: Scored | None) -> list[tuple[str, str]]:
    names = ["step time", "tokens/s", "step / bound", "GPU utilization", "GPUs"]
    priced = answer.best.cost_per_token > 0
    names += ["cost per billion tokens"] * priced
    tokens = answer.ask.tokens
    if tokens:
        names += [f"days for {count(tokens)} tokens"] + [f"cost of {count(tokens)} tokens"] * priced
    if scored is None:
        return [(name, "nothing fits" if not index else "") for index, name in enumerate(names)]
    result = scored.result
    values = [
        format_seconds(result.step_time_s),
        count(result.tokens_per_s),
        f"{result.step_over_bound:.3f}",
        percent(result.gpu_utilization),
        str(result.plan.num_gpus),
        *([money(result.cost_per_billion_tokens)] if priced else []),
        *([f"{days(scored.s_per_token * tokens):.1f}"] if tokens else []),
        *([money(scored.cost_per_token * tokens)] if tokens and priced else []),
    ]
    return list(zip(names, values, strict=True))


def _gain(name: str, answer: Answer) -> str:
    if answer.published is None:
        return ""
    best, published = answer.best, answer.published
    if name == "tokens/s":
        return f"{published.s_per_token / best.s_per_token - 1:+.1%}"
    if name.startswith("cost per") and published.cost_per_token:
        return f"{best.cost_per_token / published.cost_per_token - 1:+.1%}"
    return ""


def _figures(answer: Answer) -> Table:
    table = figure_table("")
    table.add_column("")
    for column in ("this plan", "published algorithm", "gain"):
        table.add_column(column, justify="right", no_wrap=True, style="bold" if column == "this plan" else None)
    for row in figure_rows(answer):
        table.add_row(*row)
    return table


def layout_facts(best: Scored) -> list[tuple[str, str]]:
    """The choices of the plan by name."""
    plan, job = best.result.plan, best.result.plan.job
    held = "" if plan.max_in_flight == "auto" else f", at most {plan.max_in_flight} in flight"
    facts = [
        ("across", kind_of(plan)),
        ("stages", f"{len(plan.stages)} of {_layers(best)}"),
        ("tensor parallel", f"{plural(plan.tensor_parallel, 'GPU')} per stage and pipeline"),
        ("pipelines", f"{plan.pipelines_per_cell} per cell x {plural(num_cells(plan), 'cell')}"),
        ("microbatches", f"{plan.num_microbatches} per pipeline, of {plural(job.microbatch, 'sample')}"),
        ("schedule", plan.schedule + held),
    ]
    facts += [("WAN", _wan(best))] if best.result.links else []
    room = plan.prefill_room_bytes
    return facts + ([("prefill room", f"{format_bytes(room)} of each GPU")] if room else [])


def _layers(best: Scored) -> str:
    each = [stage.layers for stage in best.result.plan.stages]
    return plural(each[0], "layer") if len(set(each)) == 1 else f"{min(each)} to {max(each)} layers"


def _wan(best: Scored) -> str:
    connections = sorted({link.connections for link in best.result.links})
    sharing = sorted({mode for mode in best.result.sharing if mode})
    how = f", {' and '.join(sharing)} sharing" if sharing else ""
    return f"{ranges(connections)} connection{'' if connections == [1] else 's'} per pair{how}"


def _layout(best: Scored) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, fact in layout_facts(best):
        table.add_row(name, Text(fact))
    return table


def datacenter_rows(best: Scored, worths: tuple[Worth, ...]) -> list[list[str]]:
    """Data center, GPUs, GPU type, stages, layers, what it brings; the ones left out last."""
    plan = best.result.plan
    brings = {one.dc: one.reason.removeprefix("it ") for one in worths}
    rows = [
        [
            use.dc,
            f"{use.gpus} of {use.has_gpus}",
            plan.cluster.datacenter(use.dc).gpu.name,
            ranges(use.stages),
            str(use.layers),
            brings[use.dc] if len(brings) > 1 else "",
        ]
        for use in uses(plan)
    ]
    for name in unused_datacenters(plan):
        dc = plan.cluster.datacenter(name)
        rows.append([name, f"0 of {dc.num_gpus}", dc.gpu.name, "none", "0", brings[name]])
    return rows


def _datacenters(best: Scored, worths: tuple[Worth, ...]) -> Table:
    table = figure_table("Data centers")
    table.add_column("data center", max_width=16, overflow="ellipsis", no_wrap=True)
    table.add_column("GPUs used", justify="right", no_wrap=True)
    table.add_column("GPU", max_width=10, overflow="ellipsis", no_wrap=True)
    table.add_column("stages", no_wrap=True, max_width=14, overflow="ellipsis")
    table.add_column("layers", justify="right", no_wrap=True)
    table.add_column("worth")
    for row in datacenter_rows(best, worths):
        table.add_row(*map(Text, row), style="dim" if row[3] == "none" else None)
    return table


def other_rows(answer: Answer) -> list[list[str]]:
    """Kind, GPUs, step, tokens/s, against the best, cost per billion tokens."""
    return [
        [
            kind_of(scored.result.plan),
            str(scored.result.plan.num_gpus),
            format_seconds(scored.result.step_time_s),
            count(scored.result.tokens_per_s),
            f"{answer.best.s_per_token / scored.s_per_token - 1:+.1%}",
            money(scored.result.cost_per_billion_tokens),
        ]
        for scored in _shown(answer.others)
    ]


def _shown(others: tuple[Scored, ...]) -> list[Scored]:
    """The best few, and always the best in a single data center."""
    first, rest = list(others[:_MOST_OTHERS]), others[_MOST_OTHERS:]
    if not any(_is_alone(scored) for scored in first):
        first += [scored for scored in rest if _is_alone(scored)][:1]
    return first


def _is_alone(scored: Scored) -> bool:
    return len(used_datacenters(scored.result.plan)) == 1


OTHER_HEADINGS = ["layout", "GPUs", "step", "tokens/s", "against best", "cost/B tokens"]


def _others(answer: Answer) -> Table:
    left = len(answer.others) - len(_shown(answer.others))
    table = figure_table(f"Runners-up of other kinds{f', {left} more not shown' if left > 0 else ''}")
    table.add_column(OTHER_HEADINGS[0], overflow="fold")
    for heading in OTHER_HEADINGS[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in other_rows(answer):
        table.add_row(*map(Text, row))
    return table


def search_sentence(answer: Answer) -> str:
    """How much was looked at, and how good the answer is known to be."""
    looked = (
        f"{plural(answer.considered, 'layout')} considered, {plural(answer.evaluations, 'simulation')}, "
        f"{format_seconds(answer.search_s)}"
    )
    better = f"more than {answer.gap:.1%} better" if answer.gap >= 0.0005 else "better"
    none = f"no plan with stages placed in a way that was tried is {better}"
    endings = {
        "proven": none,
        "budget": f"stopped by {_what_stopped(answer)}, more may find better; {none}",
        "interrupted": f"interrupted: this is the best so far; {none}",
    }
    return f"Search: {looked}; {endings[answer.ending]}."


def _what_stopped(answer: Answer) -> str:
    ask = answer.ask
    if answer.evaluations >= ask.most_evaluations:
        return f"--evaluations, {plural(int(ask.most_evaluations), 'simulation')}"
    return f"--budget, {format_seconds(ask.seconds)}"
