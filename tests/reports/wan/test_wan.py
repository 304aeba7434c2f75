import xml.etree.ElementTree as ElementTree

from rich.console import Console

from geotrain.reports.wan import bench_json, bench_svg, bench_table, probe_json, probe_svg, probe_table
from tests.wan.sample import bench, probe, way

SVG = "{http://www.w3.org/2000/svg}"


def text(table) -> str:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(table)
        return console.export_text()


def test_a_probe_as_a_table_fits_80_columns():
    shown = text(probe_table(probe()))
    assert "…" not in shown
    assert "293 Mbit/s" in shown and "1.008 Gbit/s" in shown and "1.465 MB" in shown


def test_what_to_know_is_said():
    found = probe_json(probe(there=way(1e6, 2e6), back=way(1e6, cores=0.99)))
    assert found["remarks"] == [
        "there: still growing at 2 connections: the cap is higher",
        "back: there was hardly any CPU left, so the cap may be a machine's and not the path's",
    ]


def test_a_probe_as_json():
    there = probe_json(probe())["there"]
    assert (there["single_rate"], there["pair_cap"], there["tcp_window"], there["connections"]) == (
        36.625e6, 126e6, 1.465e6, 4,
    )  # fmt: skip


def test_a_probe_as_a_chart_has_a_line_per_direction_and_a_point_per_step():
    root = ElementTree.fromstring(probe_svg(probe()))
    assert [line.get("class") for line in root.iter(f"{SVG}polyline")] == ["paper", "there", "back"]
    assert len([c for c in root.iter(f"{SVG}circle") if c.find(f"{SVG}title") is not None]) == 8


def test_a_bench_as_a_table_fits_80_columns_and_says_what_is_missing():
    shown = text(bench_table(bench()))
    assert "…" not in shown
    assert "gloo: not measured: torch is not installed" in shown
    assert "10.00" in shown


def test_a_bench_as_json_and_as_a_chart():
    rows = bench_json(bench())["rows"]
    assert [row["missing"] for row in rows] == [None, None, "torch is not installed"]
    root = ElementTree.fromstring(bench_svg(bench()))
    assert [rect.get("class") for rect in root.iter(f"{SVG}rect")] == ["bar", "best"]
