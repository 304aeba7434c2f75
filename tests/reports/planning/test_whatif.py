import csv
import io
import re
from xml.etree import ElementTree

from rich.console import Console

from geotrain.planner import Ask
from geotrain.planner.whatif import NothingFits, Outcome, Row, grid, parse_axis
from geotrain.reports.planning import whatif_csv, whatif_json, whatif_svg, whatif_table
from geotrain.reports.planning.whatif import short_names
from tests.planner.whatif.tasks import cluster, found, job

SVG = "{http://www.w3.org/2000/svg}"
WAN = "bytes over the WAN from a to b, in rounds that memory allows"


def rows(outcomes: list[Outcome], *flags: str) -> list[Row]:
    base, work = cluster(6, 3), job()
    points = grid(base, work, [parse_axis(flag, base, work) for flag in flags], Ask())
    return [Row(point=point, outcome=outcome) for point, outcome in zip(points, outcomes, strict=True)]


def three() -> list[Row]:
    """The second is 1.5 times as fast as the first, and the third does not fit."""
    outcomes: list[Outcome] = [
        found({"a": 6}, tokens_per_s=20_000.0),
        found({"a": 6, "b": 3}, tokens_per_s=30_000.0, binding=WAN),
        NothingFits(reason="stages need 12 slots"),
    ]
    return rows(outcomes, "wan.default.pair_cap=1,10Gbit/s,unlimited")


def printed(width: int, entries: list[Row], sentence: str = "") -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(whatif_table(entries, sentence))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_the_table_where_there_is_room():
    lines = printed(150, three(), "The answer.").splitlines()
    assert [line.split("  ") for line in (re.sub(" {2,}", "  ", line.strip()) for line in lines[:1] + lines[2:5])] == [
        ["pair cap", "data centers", "layout", "schedule", "across", "step", "tokens/s", "relative", "cost/B", "binds"],
        ["1 Gbit/s", "a 6", "1 x 2 x 3", "auto", "none", "500 ms", "20k", "1.00x", "20", "compute, stage 0"],
        [
            "10 Gbit/s",
            "a 6 + b 3",
            "1 x 2 x 4",
            "auto",
            "pipeline",
            "500 ms",
            "30k",
            "1.50x",
            "20",
            "WAN a to b, memory",
        ],
        ["unlimited", *"---------"],
    ]
    assert lines[5:] == [
        "",
        "layout: GPUs of a stage x stages x pipelines",
        "",
        "Nothing fits",
        "unlimited  stages need 12 slots",
        "",
        "The answer.",
    ]


def test_in_80_columns_no_figure_is_cut():
    text = printed(80, three())
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for word in ("10 Gbit/s", "500 ms", "1.50x", "a 6 + b 3", "pipeline", "1x2x4"):
        assert word in text


def test_json_has_the_names_of_the_contract_in_si():
    answer = whatif_json(three(), "The answer.")
    assert (answer["varied"], answer["answer"]) == (["wan.default.pair_cap"], "The answer.")
    second, third = answer["rows"][1:]
    assert {name: second[name] for name in ("wan.default.pair_cap", "tokens_per_s", "step_time_s", "gpus")} == {
        "wan.default.pair_cap": 1.25e9,
        "tokens_per_s": 30_000.0,
        "step_time_s": 0.5,
        "gpus": 9,
    }
    assert (second["relative"], second["datacenters"], second["cost_per_billion_tokens"]) == (1.5, {"a": 6, "b": 3}, 20)
    assert (third["tokens_per_s"], third["reason"], third["wan.default.pair_cap"]) == (
        None,
        "stages need 12 slots",
        None,
    )


def test_csv_says_the_same():
    read = list(csv.DictReader(io.StringIO(whatif_csv(three()))))
    assert [(row["wan.default.pair_cap"], row["tokens_per_s"], row["datacenters"]) for row in read] == [
        ("125000000.0", "20000.0", "a: 6"),
        ("1250000000.0", "30000.0", "a: 6 + b: 3"),
        ("", "", ""),
    ]
    assert read[2]["reason"] == "stages need 12 slots"


def test_short_names_stay_different():
    assert short_names(["wan.default.rtt", "datacenters.b.nodes", "job.global_batch"]) == [
        "rtt",
        "b.nodes",
        "global batch",
    ]
    assert short_names(["wan.default.rtt", "cluster.wan.default.rtt"]) == ["wan.default.rtt", "cluster.wan.default.rtt"]


def test_one_thing_varied_is_one_line_and_what_does_not_fit_a_cross():
    chart = ElementTree.fromstring(whatif_svg(three()))
    circles = [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in chart.iter(f"{SVG}circle")]
    assert len(list(chart.iter(f"{SVG}polyline"))) == 1
    assert len(list(chart.iter(f"{SVG}path"))) == 1
    assert circles == sorted(circles)
    assert circles[0][1] > circles[1][1]
    texts = [each.text for each in chart.iter(f"{SVG}text")]
    assert {"Tokens per second over wan.default.pair_cap", "1 Gbit/s", "10 Gbit/s", "unlimited", "30k"} <= set(texts)


def test_two_things_varied_are_a_line_for_each_value_of_the_second():
    outcomes: list[Outcome] = [found({"a": 6}, tokens_per_s=1000.0 * speed) for speed in (1, 2, 2, 3, 2, 5, 1, 4, 2)]
    chart = ElementTree.fromstring(
        whatif_svg(rows(outcomes, "datacenters.a.nodes=0..4:2", "wan.default.rtt=1,2,300ms"))
    )
    assert len(list(chart.iter(f"{SVG}polyline"))) == 3
    texts = ["".join(each.itertext()) for each in chart.iter(f"{SVG}text")]
    assert [text for text in texts if text.endswith(" ms") or text == "rtt"] == ["rtt", "1 ms", "2 ms", "300 ms"]


def test_a_line_that_another_hides_says_which():
    outcomes: list[Outcome] = [found({"a": 6}, tokens_per_s=1000.0)] * 4
    svg = whatif_svg(rows(outcomes, "datacenters.a.nodes=1,2", "wan.default.rtt=1,2ms"))
    texts = ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert "1 ms = 2 ms" in texts


def test_crowded_labels_are_thinned_out_and_both_ends_stay():
    outcomes: list[Outcome] = [found({"a": 6}, tokens_per_s=1000.0 + number) for number in range(101)]
    svg = whatif_svg(rows(outcomes, "datacenters.a.nodes=1000..1100"))
    texts = [each.text for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    labels = [text for text in texts if text is not None and text.startswith("1") and len(text) == 4]
    assert {"1000", "1100"} <= set(labels)
    assert 5 < len(labels) < 25


def test_a_chart_of_nothing_that_fits_is_a_chart():
    nothing: list[Outcome] = [NothingFits(reason="no")] * 2
    assert whatif_svg(rows(nothing, "wan.default.rtt=1,2ms")).count("<path") == 2
