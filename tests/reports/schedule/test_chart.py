import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from geotrain.reports.schedule import comparison_svg
from tests.reports.schedule.test_comparison import ROWS

SVG = "{http://www.w3.org/2000/svg}"


def bars(svg):
    return [float(rect.get("width", "")) for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect")]


def test_bars_are_best_first_with_title_and_description():
    root = ElementTree.fromstring(comparison_svg(ROWS))

    assert root.findtext(f"{SVG}title") == "Step time by schedule, connections and sharing"
    assert root.findtext(f"{SVG}desc") == (
        "atlas, 18 conn., temporal: 500 ms; zero-bubble-2p, 18 conn., spatial: 610 ms; gpipe, 1 conn., spatial: 12 s"
    )
    assert sorted(bars(comparison_svg(ROWS))) == bars(comparison_svg(ROWS))


@pytest.mark.parametrize(
    ("slowest_s", "scale"),
    [pytest.param(12.0, "logarithmic", id="24-times"), pytest.param(5.0, "linear", id="10-times")],
)
def test_a_wide_spread_is_logarithmic_and_says_so(slowest_s, scale):
    rows = [replace(row, step_time_s=min(row.step_time_s, slowest_s)) for row in ROWS]

    assert f"({scale} scale" in comparison_svg(rows)


def test_a_linear_bar_is_as_long_as_its_time():
    rows = [replace(ROWS[0], step_time_s=seconds) for seconds in (1.0, 2.0, 4.0)]

    assert bars(comparison_svg(rows)) == pytest.approx([110, 220, 440])


@pytest.mark.parametrize("rows", [[], ROWS[:1], [replace(ROWS[0], step_time_s=0.0)]], ids=["none", "one", "no-time"])
def test_odd_rows_still_make_a_chart(rows):
    assert len(bars(comparison_svg(rows))) == len(rows)


def test_names_are_escaped():
    svg = comparison_svg([replace(ROWS[0], schedule="<script>")])

    assert "<script>" not in svg and "&lt;script&gt;" in svg
