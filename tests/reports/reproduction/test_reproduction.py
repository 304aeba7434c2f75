import re
import subprocess
from xml.etree import ElementTree

import pytest

from geotrain.reports.reproduction import reproduction_html, reproduction_markdown, reproduction_svg
from geotrain.reports.reproduction.chart import number
from geotrain.reproduction import Chart, Finding, Outcome, load
from geotrain.reproduction.finding import Source, measured
from tests.reports.step.test_page import chromium

SVG = "{http://www.w3.org/2000/svg}"
OVER = Chart(figure="rate", over="rtt_ms", by="connections")


def rates(*values: float) -> list[Finding]:
    source = Source(command="geotrain simulate <plan> --json | jq .rate")
    return [
        Finding(row={"rtt_ms": 10 * n, "connections": "one"}, figure="rate", value=v, unit="Mbit/s", sources=(source,))
        for n, v in enumerate(values, start=1)
    ]


def outcome(findings: list[Finding], missing: str = "", name: str = "bandwidth") -> Outcome:
    return Outcome(name=name, experiment=load(name), findings=tuple(findings), took_s=1.0, quick=False, missing=missing)


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [(17.0, "x", "17x"), (0.945, "%", "94.5%"), (0.0, "%", "0"), (1220, "Mbit/s", "1,220 Mbit/s"), (1e-3, "", "0.001")],
)
def test_figures_are_short(value, unit, said):
    assert number(value, unit) == said


def test_a_chart_says_all_it_shows():
    root = ElementTree.fromstring(reproduction_svg(OVER, rates(1200, 600)))
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "rate (Mbit/s) over rtt ms"
    assert root.findtext(f"{SVG}desc") == "one, rtt ms 10: 1,200 Mbit/s; one, rtt ms 20: 600 Mbit/s"
    assert len(list(root.iter(f"{SVG}circle"))) == 2 + 1


def test_a_chart_of_words_is_bars_with_their_spread():
    found = [measured((1.0, 3.0, 2.0), row={"who": who}, figure="rate") for who in ("simulated", "measured")]
    root = ElementTree.fromstring(reproduction_svg(Chart(figure="rate", over="who"), found))
    assert len(list(root.iter(f"{SVG}rect"))) == 2
    assert len([line for line in root.iter(f"{SVG}line") if line.get("class") == "whisker"]) == 2


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 5.0], [1e-6, 1e6], [-0.1, 0.2]], ids=str)
def test_a_chart_can_be_drawn_of_whatever_was_found(values):
    svg = reproduction_svg(OVER, rates(*values))
    assert bool(svg) == bool(values)
    if svg:
        ElementTree.fromstring(svg)


def test_the_page_needs_nothing_else_and_traces_every_number():
    page = reproduction_html([outcome(rates(1200, 600, 400, 300))])
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert "Guesses:" in page
    assert page.count("geotrain simulate &lt;plan&gt; --json | jq .rate") == 4
    for word in ("holds", "more", "not measured", "memory", "derived"):
        assert f">{word}</td>" in page or word in ("more",)


def test_what_was_not_measured_is_said():
    silent = outcome([], missing="needs <root>", name="training-testbed")
    assert "Not measured: needs &lt;root&gt;" in reproduction_html([silent])
    assert "Not measured: needs <root>" in reproduction_markdown([silent], made_with="geotrain reproduce")


def test_the_docs_have_the_claims_and_the_figures():
    text = reproduction_markdown([outcome(rates(1200, 600, 400, 300))], made_with="geotrain reproduce")
    assert "Written by `geotrain reproduce`" in text
    assert "| bandwidth | one connection at 10 ms | 1,220 Mbit/s, ±5% | 1,200 Mbit/s | holds | memory |" in text
    assert "| 20 | 600 Mbit/s |" in text


@pytest.mark.timeout(180)
def test_a_browser_shows_the_page(tmp_path):
    page = tmp_path / "index.html"
    page.write_text(reproduction_html([outcome(rates(1200, 600, 400, 300))]), encoding="utf-8")
    quiet = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command = [chromium(), "--headless", "--no-sandbox", *quiet, f"--user-data-dir={tmp_path / 'profile'}"]
    dom = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=170, check=True
    ).stdout
    assert dom.count('<svg xmlns="http://www.w3.org/2000/svg" class="plot"') == 1
    assert "published figures" in dom or "remembered ones" in dom
