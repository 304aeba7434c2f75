"""The parts of the page on a step that are text, tables and bars. Everything inserted is escaped here."""

from html import escape

from geotrain.action import Kind
from geotrain.planner.use import num_cells, uses
from geotrain.reports.charts import Part, stacked_bar
from geotrain.reports.html.sections import bar_row, legend, section, table
from geotrain.reports.words import gains, money, percent, ranges, shares, used_of_limit
from geotrain.simulation.result import Result
from geotrain.units import format_bytes, format_rate, format_seconds, format_traffic, plural


def time_shares(result: Result) -> str:
    """Where the slots' time went: one bar and its legend."""
    entries = shares(result.shares)
    parts = [
        Part(key=_css(entry.key), label=f"{entry.label}: {percent(entry.value)}", value=entry.value)
        for entry in entries
    ]
    said = ", ".join(part.label for part in parts)
    chart = stacked_bar(parts, total=1.0, title="Where the GPUs' time went", description=said)
    return f'<div class="tall">{chart}</div>' + legend(
        [(_css(entry.key), entry.label, percent(entry.value)) for entry in entries]
    )


def _css(key: str) -> str:
    return key.replace("_", "-")


def _stage_name(result: Result, stage: int) -> tuple[str, str]:
    plan = result.plan
    detail = (
        f"{plan.stages[stage].dc}, {plural(plan.stages[stage].layers, 'layer')}, {plan.datacenter_of(stage).gpu.name}"
    )
    return f"stage {stage}", detail


def stages(result: Result) -> str:
    """What each stage's slots did, as shares of the step, mean over pipelines."""
    timeline, step = result.timeline, result.step_time_s
    whole = step * timeline.num_pipelines
    kinds = {kind: busy / whole for kind, busy in timeline.busy_by_kind_s().items()}
    backward = kinds[Kind.B] + kinds[Kind.I] + kinds[Kind.W]
    updates = (timeline.update_end_s - timeline.update_start_s) / step
    reduces = (timeline.update_start_s - timeline.reduce_start_s) / step
    busy = timeline.busy_s / step
    rows = []
    for stage in range(timeline.num_stages):
        columns = [
            ("forward", kinds[Kind.F]),
            ("recompute", kinds[Kind.R]),
            ("backward", backward),
            ("optimizer", updates),
            ("all-reduce", reduces),
        ]
        parts = [
            Part(key=key, label=f"{key}: {percent(float(column[stage]))}", value=float(column[stage]))
            for key, column in columns
        ]
        name, detail = _stage_name(result, stage)
        low, high = percent(float(busy[:, stage].min())), percent(float(busy[:, stage].max()))
        value = f"{low} busy" if low == high else f"{low} to {high} busy"
        said = ", ".join(part.label for part in parts)
        rows.append(bar_row(name, detail, stacked_bar(parts, total=1.0, title=f"{name} busy", description=said), value))
    keys = ["forward", "recompute", "backward", "optimizer", "all-reduce"]
    return f'<ul class="bars">{"".join(rows)}</ul>' + legend([(key, key, "") for key in keys] + [("idle", "idle", "")])


def memory(result: Result) -> str:
    """Peak memory of a GPU of each stage against what it has."""
    entries = result.memory
    total = max((max(entry.total_bytes, entry.limit_bytes) for entry in entries), default=1.0)
    rows = []
    for stage, entry in enumerate(entries):
        sizes = [
            ("static", "weights, gradients, optimizer", entry.static_bytes),
            ("held", "held for microbatches in flight", entry.activations_bytes),
            ("workspace", "workspace", entry.workspace_bytes),
        ]
        parts = [Part(key=key, label=f"{label}: {format_bytes(size)}", value=size) for key, label, size in sizes]
        said = ", ".join(part.label for part in parts) + f", limit: {format_bytes(entry.limit_bytes)}"
        name = f"stage {stage}"
        chart = stacked_bar(parts, total=total, title=f"{name} memory", description=said, limit=entry.limit_bytes)
        over = " (over)" if entry.total_bytes > entry.limit_bytes else ""
        detail = f"{result.plan.stages[stage].dc}, {entry.in_flight:.3g} in flight"
        rows.append(bar_row(name, detail, chart, f"{used_of_limit(entry)}{over}"))
    keys = [("static", "weights, gradients, optimizer", ""), ("held", "microbatches in flight", "")]
    keys += [("workspace", "workspace", ""), ("limit", "limit", "")]
    return f'<ul class="bars">{"".join(rows)}</ul>' + legend(keys)


def links(result: Result) -> str:
    """What each direction between data centers carried."""
    if not result.links:
        return "<p>All stages are in one data center: nothing crosses the WAN.</p>"
    priced = any(link.cost > 0 for link in result.links)
    headings = ["direction", "bytes per step", "busy", "rate of a pair", "connections", *(["cost"] if priced else [])]
    return table(
        headings,
        (
            [
                f"{link.source} → {link.target}",
                format_traffic(link.size_bytes),
                percent(link.busy_fraction),
                format_rate(link.rate),
                str(link.connections),
                *([money(link.cost)] if priced else []),
            ]
            for link in result.links
        ),
    )


def search(result: Result) -> str:
    """What each idea of the search brought; nothing where no search was made."""
    if not result.gains:
        return ""
    rows = table(["idea", "step", "x bound", "shorter by"], gains(result))
    return section("search", "What each idea of the search brought", rows)


def plan_details(result: Result) -> str:
    """The choices that were made, and the data centers they use."""
    plan, job = result.plan, result.plan.job
    facts = {
        "model": f"{job.model.name}: {plural(job.model.layers, 'layer')}, hidden {job.model.hidden}, "
        f"{plural(job.model.heads, 'head')}",
        "sequence": f"{job.sequence} tokens",
        "microbatch": f"{plural(job.microbatch, 'sample')}, {plan.num_microbatches} per pipeline and step",
        "training": f"{job.precision}, recompute {job.recompute}, {job.optimizer}",
        "schedule": plan.schedule + (f", interleave {plan.interleave}" if plan.interleave > 1 else ""),
        "pipelines": f"{plan.pipelines_per_cell} per cell, {plural(num_cells(plan), 'cell')}",
        "tensor parallel": f"{plural(plan.tensor_parallel, 'GPU')} per slot",
        "in flight": f"at most {plan.max_in_flight}" if plan.max_in_flight != "auto" else "what memory allows",
        "connections": _connections(result),
        "sharing": _sharing(result),
        "lower bound": f"{format_seconds(result.bound.total_s)}, binding: {result.bound.binding}",
    }
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(fact)}</dd></div>" for name, fact in facts.items())
    rows = []
    for use in uses(plan):
        dc = plan.cluster.datacenter(use.dc)
        fabric = "unlimited" if dc.fabric is None else format_rate(dc.fabric.rate)
        price = money(dc.price_per_gpu_hour) if dc.price_per_gpu_hour > 0 else "none"
        rows.append([use.dc, ranges(use.stages), f"{use.gpus} of {use.has_gpus}", dc.gpu.name, fabric, price])
    headings = ["data center", "stages", "GPUs used", "GPU", "fabric", "price per GPU hour"]
    return f'<dl class="facts">{items}</dl>' + table(headings, rows)


def _connections(result: Result) -> str:
    """What the plan says, and what auto came to."""
    numbers = sorted({link.connections for link in result.links})
    auto = f": {', '.join(map(str, numbers))}" if result.plan.wan.connections == "auto" and numbers else ""
    return f"{result.plan.wan.connections}{auto} per pair"


def _sharing(result: Result) -> str:
    """Per boundary where they differ, else one word."""
    modes = {boundary: mode for boundary, mode in enumerate(result.sharing) if mode is not None}
    if not modes:
        return "no boundary crosses the WAN"
    if len(set(modes.values())) == 1:
        return next(iter(modes.values()))
    return ", ".join(f"stage {boundary} to {boundary + 1} {mode}" for boundary, mode in modes.items())
