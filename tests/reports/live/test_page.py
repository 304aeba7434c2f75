import re

import numpy as np
import pytest
from rich.console import Console

from geotrain.reports.live import Blocks, live_html, live_table
from tests.reports.live.sample import live, side, spans
from tests.reports.step.test_page import read


def test_the_page_needs_no_scripts_and_nothing_else():
    reader = read(live_html(live()))
    assert "script" not in reader.tags
    assert reader.sources == []


def test_every_picture_has_words():
    text = live_html(live())
    pictures = re.findall(r'<svg class="plot".*?</svg>', text, re.DOTALL)
    assert len(pictures) == 2
    assert all(
        re.match(r'<svg class="plot" role="img"[^>]*><title>[^<]+</title><desc>[^<]+</desc>', one) for one in pictures
    )


def test_the_figures_are_told():
    text = " ".join(read(live_html(live())).texts)
    for said in (
        "Live: GPUs 50.0% busy with training, 75.0% with serving",
        "50.0% → 75.0%",
        "200 ms",
        "25.0%",
        "0.00%",
    ):
        assert said in text


def test_the_timeline_has_two_steps_of_both():
    text = live_html(live())
    assert "2 GPUs over 2 s: 4 actions of training, and 4 pieces of prefill between them" in text
    assert "<title>prefill 7: 250 ms</title>" in text
    assert "<title>forward 0: 500 ms</title>" in text


def test_texts_are_escaped():
    assert "<b>" not in live_html(live(trace="<b>")).split("<main>")[0].split("<body>")[1]


@pytest.mark.parametrize(
    ("on", "said"), [("testbed", "network namespaces"), ("local", "there is no emulated WAN here")]
)
def test_it_says_what_was_real(on: str, said: str):
    text = live_html(live(on=on))
    assert said in text
    assert "its weights are random" in text


def test_a_run_without_any_load_is_still_a_page():
    nothing = side(
        blocks=Blocks(on_s=0.5, off_s=1.0, rounds=1), prefill=spans(), ttft_s=np.zeros(0), rejected=0, overruns=0
    )
    text = live_html(live(measured=nothing))
    assert "No two steps were under load" in text


def test_the_table_says_the_same_in_eighty_columns():
    console = Console(width=80, highlight=False)
    with console.capture() as caught:
        console.print(live_table(live()))
    lines = caught.get().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("measured") and "75.0%" in line and "25.0%" in line for line in lines)
