import pytest

from geotrain.reports.step import summary_table
from tests.reports import sample
from tests.reports.terminal import show

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


def test_markup_in_names_is_shown_as_it_is():
    assert "[red]east" in show(summary_table(sample.small(names=("[red]east", "s", "w"))))
