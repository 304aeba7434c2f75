"""What was measured on a WAN, for people and for machines: a probe of a path, a benchmark of transfers."""

import math
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from geotrain.reports.textbars import bar, figure_table
from geotrain.units import format_rate, format_seconds, format_traffic, plural
from geotrain.wan.bench import Bench
from geotrain.wan.figures import Probe, Way


def probe_table(probe: Probe) -> RenderableType:
    """Rates over connections, both ways, and below them the figures that a cluster file wants."""
    table = figure_table(f"{probe.host}:{probe.port}, {'TLS' if probe.secure else 'without TLS'}")
    for column in ("connections", "there", "", "back", " "):
        table.add_column(column, justify="left" if not column.strip() else "right", no_wrap=True)
    ways = (probe.there, probe.back)
    highest = max(way.cap for way in ways)
    numbers = sorted({step.connections for way in ways for step in way.steps})
    for number in numbers:
        cells: list[RenderableType] = [str(number)]
        for way in ways:
            rate = next((step.rate for step in way.steps if step.connections == number), None)
            cells += ["-" if rate is None else format_rate(rate), bar((rate or 0.0) / highest, 12, "blue")]
        table.add_row(*cells)
    return Group(table, Text(), _probe_figures(probe), *(Text(remark, style="yellow") for remark in remarks(probe)))


def _probe_figures(probe: Probe) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    rtt = format_seconds(probe.rtt_s)
    table.add_row("rtt", rtt, "", f"middle of {len(probe.rtts_s)}, fastest {format_seconds(min(probe.rtts_s))}")
    rows = {
        "pair_cap": [f"{'at least ' * way.growing}{format_rate(way.cap)}" for way in (probe.there, probe.back)],
        "tcp_window": [format_traffic(probe.window_bytes(way)) for way in (probe.there, probe.back)],
        "connections": [str(way.enough) for way in (probe.there, probe.back)],
    }
    words = {"pair_cap": "the most, there and back", "tcp_window": "rate of one x rtt", "connections": "that reach it"}
    for name, values in rows.items():
        table.add_row(name, *values, words[name])
    return table


def remarks(probe: Probe) -> list[str]:
    """What to know before trusting the figures."""
    said = []
    for name, way in (("there", probe.there), ("back", probe.back)):
        if way.growing:
            said.append(
                f"{name}: still growing at {plural(way.steps[-1].connections, 'connection')}: the cap is higher"
            )
        if way.busy:
            said.append(f"{name}: there was hardly any CPU left, so the cap may be a machine's and not the path's")
    return said


def probe_json(probe: Probe) -> dict[str, Any]:
    """The object that `geotrain wan probe --json` prints. Its names are a contract."""
    return {
        "host": probe.host,
        "port": probe.port,
        "tls": probe.secure,
        "rtt_s": probe.rtt_s,
        "fastest_rtt_s": min(probe.rtts_s),
        "there": _way_json(probe, probe.there),
        "back": _way_json(probe, probe.back),
        "remarks": remarks(probe),
    }


def _way_json(probe: Probe, way: Way) -> dict[str, Any]:
    return {
        "single_rate": way.single,
        "pair_cap": way.cap,
        "tcp_window": probe.window_bytes(way),
        "connections": way.enough,
        "still_growing": way.growing,
        "steps": [asdict(step) for step in way.steps],
    }


def bench_table(bench: Bench) -> RenderableType:
    """Time of a transfer each way, against one connection and against the simulator."""
    table = figure_table(f"{format_traffic(bench.size_bytes)} from {bench.source} to {bench.target}, one at a time")
    for column in ("way", "conn", "time", "rate", "x one", "sim.", "x sim.", "CPU"):
        table.add_column(column, justify="left" if column == "way" else "right", no_wrap=True)
    for row in bench.rows:
        if row.missing:
            continue
        table.add_row(
            row.way,
            str(row.connections),
            format_seconds(row.time_s),
            format_rate(bench.rate(row)),
            f"{bench.gain(row):.2f}",
            format_seconds(row.predicted_s),
            f"{row.time_s / row.predicted_s:.2f}" if row.predicted_s > 0 else "-",
            f"{row.cpu_s / row.time_s:.0%}",
        )
    missing = [Text(f"{row.way}: not measured: {row.missing}", style="yellow") for row in bench.rows if row.missing]
    words = "conn: TCP connections per pair. sim.: what the simulator counts on. CPU: of both ends, in cores."
    return Group(table, Text(words, style="dim"), *missing)


def bench_json(bench: Bench) -> dict[str, Any]:
    """The object that `geotrain wan bench --json` prints. Its names are a contract."""
    rows = []
    for row in bench.rows:
        rows.append(
            {
                "way": row.way,
                "pairs": row.pairs,
                "connections": row.connections,
                "time_s": row.time_s,
                "times_s": row.times_s,
                "rate": bench.rate(row),
                "gain_over_one_connection": bench.gain(row),
                "predicted_s": row.predicted_s,
                "time_over_predicted": row.time_s / row.predicted_s if row.predicted_s > 0 else math.nan,
                "cpu_s": row.cpu_s,
                "missing": row.missing or None,
            }
        )
    return {"source": bench.source, "target": bench.target, "size_bytes": bench.size_bytes, "rows": rows}
