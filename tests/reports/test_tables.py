from io import StringIO

import pytest
from rich.console import Console

from geotrain.reports import ComparisonRow, comparison_table, summary_table
from geotrain.reports.textbars import bar, cells, stacked
from tests.reports import sample


def show(renderable, width=80):
    page = StringIO()
    Console(width=width, file=page, no_color=True, force_terminal=False).print(renderable)
    return page.getvalue()


RESULTS = [
    pytest.param(sample.small, id="small"),
    pytest.param(sample.large, id="large"),
    pytest.param(sample.one_datacenter, id="one-data-center"),
    pytest.param(lambda: sample.small(names=("asia-northeast-1-zone-b", "us", "e")), id="long-names"),
]


@pytest.mark.parametrize("make", RESULTS)
def test_summary_fits_80_columns(make):
    text = show(summary_table(make()))

    assert max(len(line) for line in text.splitlines()) <= 80
    assert "layers" in text and "in flight" in text


def test_summary_says_what_people_ask_for():
    text = " ".join(show(summary_table(sample.small())).split())

    for figure in (
        "step time 449.3 ms",
        "lower bound 359.4 ms step is 1.250 x the bound; binding: compute of stage 0 plus fill and drain",
        "GPU utilization 42.2% bubbles take 57.8%",
        "MFU 23.1%",
        "tokens/s 109k",
        "GPUs 12",
        "cost per step 0.03521 GPUs 0.002995 + egress 0.03221",
        "cost per billion tokens 716.30",
        "B backward 22.3%",
        "w waiting for the WAN 28.5%",
        "0 east 4 a100-80gb 45% ████░░░ 44 / 80 GiB 4",
        "east → south 402.7 MB 5% 5 Gbit/s 18 0.008053",
    ):
        assert figure in text


def test_money_is_left_out_where_nothing_has_a_price():
    assert "cost" not in show(summary_table(sample.small(price=0.0)))


def test_many_stages_of_the_same_make_share_a_row():
    text = show(summary_table(sample.large()))

    assert [line.split()[:2] for line in text.splitlines() if "a100" in line] == [
        ["0-19", "east"],
        ["20-39", "south"],
        ["40-59", "west"],
    ]


def test_nothing_about_links_without_a_wan():
    assert "WAN links" not in show(summary_table(sample.one_datacenter()))


ROWS = [
    ComparisonRow(
        schedule=schedule,
        connections=connections,
        sharing=sharing,
        step_time_s=seconds,
        gpu_utilization=0.4 / seconds,
        step_over_bound=seconds / 0.4,
        speedup=12 / seconds,
    )
    for schedule, connections, sharing, seconds in [
        ("gpipe", 1, "spatial", 12.0),
        ("zero-bubble-2p", 18, "spatial", 0.61),
        ("atlas", 18, "temporal", 0.5),
    ]
]


def test_comparison_is_best_first_and_fits_80_columns():
    text = show(comparison_table(ROWS, [("1f1b", 1, "spatial", "stage 0 needs 91 GiB, the GPU has 80 GiB " * 3)]))

    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert max(len(line) for line in text.splitlines()) <= 80
    assert lines[2:5] == [
        "atlas 18 temporal 500 ms █░░░░░░░░░ 80.0% 1.25 24.00x",
        "zero-bubble-2p 18 spatial 610 ms █░░░░░░░░░ 65.6% 1.52 19.67x",
        "gpipe 1 spatial 12 s ██████████ 3.3% 30.00 1.00x",
    ]
    assert "1f1b, 1 way stage 0 needs 91 GiB" in " ".join(lines)


def test_comparison_of_nothing_is_nothing():
    assert show(comparison_table([], [])).strip() == ""


def test_markup_in_names_is_shown_as_it_is():
    assert "[red]east" in show(summary_table(sample.small(names=("[red]east", "s", "w"))))


def test_bars_are_full_and_empty_only_when_they_are():
    assert [bar(fraction, 4).plain for fraction in (0, 0.01, 0.5, 0.99, 1, 1.3)] == [
        "░░░░",
        "█░░░",
        "██░░",
        "███░",
        "████",
        "████",
    ]


def test_stacked_bars_always_have_their_width():
    assert cells([1, 1, 1], 10) == [4, 3, 3]
    assert cells([0, 0], 10) == [0, 0]
    assert stacked([("F", 0.5, ""), ("B", 0.25, ""), (".", 0.25, "")], 8).plain == "FFFFBB.."
