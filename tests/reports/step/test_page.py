import base64
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from geotrain.reports.html.timeline import KINDS
from geotrain.reports.step import html_report
from geotrain.reports.step.gantt import gantt
from geotrain.simulation.result import Bound
from tests.reports import sample

RESULTS = [
    pytest.param(sample.small, id="pooled"),
    pytest.param(lambda: sample.small(sharing="spatial"), id="a-pair-each"),
    pytest.param(sample.interleaved, id="interleaved"),
    pytest.param(sample.one_datacenter, id="one-data-center"),
]


class Reader(HTMLParser):
    """Tags as they open, with what would load something."""

    def __init__(self):
        super().__init__()
        self.tags, self.sources, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]

    def handle_data(self, data):
        self.texts.append(data)


def read(text):
    reader = Reader()
    reader.feed(text)
    return reader


@pytest.mark.parametrize("make", RESULTS)
def test_nothing_is_fetched_from_anywhere(make):
    text = html_report(make())

    assert not re.search(r"https?://|@import|url\(", text)
    assert read(text).sources == []
    assert "default-src &#x27;none&#x27;" in text


def test_the_policy_allows_this_script_only():
    text = html_report(sample.small())
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = hashlib.sha256(script.encode()).digest()

    assert f"sha256-{base64.b64encode(digest).decode()}" in text


def test_names_cannot_become_markup():
    evil = '</script><script>alert("x")</script>'
    result = replace(sample.small(names=(evil, "south", "west")), bound=Bound(total_s=0.1, binding="<b>wan</b>"))

    text = html_report(result)

    assert evil not in text
    assert "<b>wan</b>" not in text
    assert read(text).tags.count("script") == 3
    assert "&lt;script&gt;alert" in text


def test_the_same_result_gives_the_same_bytes():
    assert html_report(sample.small()) == html_report(sample.small())


def test_says_what_people_ask_for():
    text = " ".join(" ".join(read(html_report(sample.small())).texts).split())

    for figure in (
        "One training step takes 449.3 ms",
        "3 data centers (east, south, west)",
        "42.2%",
        "716.30",
        "44 / 80 GiB",
    ):
        assert figure in text


def test_every_chart_has_words():
    text = html_report(sample.small())

    assert text.count('<svg class="bar" role="img"') == 9
    assert len(re.findall(r'<svg class="bar"[^>]*><title>[^<]+</title><desc>[^<]+</desc>', text)) == 9


def test_a_large_step_stays_a_small_file():
    assert len(html_report(sample.large())) < 10_000_000


def test_the_columns_hold_every_span():
    result = sample.small()
    picture = gantt(result)
    count = picture.description["spans"]
    data = base64.b64decode(picture.columns)

    start, length = np.frombuffer(data, "<u4", 2 * count).reshape(2, count)
    kind = np.frombuffer(data, "u1", count, offset=14 * count)
    names = [KINDS[number][0] for number in kind[:13]]

    assert len(data) == 15 * count
    assert count == sum(track["count"] for track in picture.description["tracks"]) == 132 + 24 + 48
    # The first row: pipeline 0, stage 0.
    assert names == ["forward"] * 4 + ["recompute", "backward"] * 4 + ["all-reduce"]
    assert int(start[0]) == 0
    assert length[0] / picture.description["ticks"] * result.step_time_s == pytest.approx(sample.FORWARD_S)


def chromium():
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("chromium is not installed: the report's script was not run")
    return found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("make", [*RESULTS, pytest.param(sample.large, id="large")])
def test_a_browser_draws_it_without_an_error(make, tmp_path):
    result = make()
    page = tmp_path / "report.html"
    page.write_text(html_report(result), encoding="utf-8")
    quiet = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command = [chromium(), "--headless", "--no-sandbox", *quiet, f"--user-data-dir={tmp_path / 'profile'}"]

    dom = subprocess.run(
        [*command, "--window-size=1280,2000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=170, check=True,
    ).stdout  # fmt: skip

    drawn = re.search(r'data-drawn-spans="(\d+)"', dom)
    (description,) = re.findall(r'id="description">(.*?)</script>', dom, re.DOTALL)
    spans = json.loads(description)["spans"]
    assert 'data-js-error="' not in dom
    assert drawn is not None
    # A short step is drawn whole, of a large one the rows in view.
    assert 0 < int(drawn[1]) <= spans
    if spans < 1000:
        assert int(drawn[1]) == spans
