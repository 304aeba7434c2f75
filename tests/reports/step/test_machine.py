import json
from dataclasses import replace

import pytest

from geotrain.reports.step import result_json
from tests.reports import sample


def test_has_the_names_others_rely_on():
    assert list(result_json(sample.small())) == [
        "step_time_s",
        "lower_bound_s",
        "step_over_bound",
        "bound",
        "gpu_utilization",
        "bubble_fraction",
        "mfu",
        "tokens_per_s",
        "gpus",
        "peak_memory_bytes",
        "memory",
        "wan",
        "schedule",
        "sharing",
        "time_shares",
        "cost_per_step",
        "cost_per_billion_tokens",
        "num_spans",
        "stage_span_s",
        "gains",
        "inter_dc_time_s",
        "intra_dc_time_s",
    ]


def test_a_link_has_both_ends_and_its_use():
    link = result_json(sample.small())["wan"][0]

    assert {name: link[name] for name in ("from", "to", "bytes", "rate_bytes_per_s", "connections")} == {
        "from": "east",
        "to": "south",
        "bytes": 12 * sample.BOUNDARY_BYTES,
        "rate_bytes_per_s": 625e6,
        "connections": 18,
    }
    assert 0 < link["busy_fraction"] < 1
    assert link["cost"] == pytest.approx(12 * 0.033554432 * 0.02)


def test_is_plain_data_all_the_way_down():
    def check(value):
        if isinstance(value, dict):
            assert all(type(key) is str for key in value)
            for inner in value.values():
                check(inner)
        elif isinstance(value, list):
            for inner in value:
                check(inner)
        else:
            assert type(value) in (float, int, str, type(None))

    figures = result_json(sample.small())
    check(figures)
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures


def test_an_unlimited_rate_is_null_because_json_has_no_infinity():
    result = sample.small()
    unlimited = replace(result, links=[replace(link, rate=float("inf")) for link in result.links])

    assert [link["rate_bytes_per_s"] for link in result_json(unlimited)["wan"]] == [None] * 4


@pytest.mark.parametrize("cells", [1, 2], ids=["one-cell", "two-cells"])
def test_transfer_times_count_every_cell(cells):
    figures = result_json(sample.small(cells=cells))

    # 3 pipelines x 4 microbatches, there and back: two boundaries over the WAN, one inside a data center.
    assert figures["inter_dc_time_s"] == pytest.approx(cells * 2 * 24 * sample.WAN_S / 3)
    assert figures["intra_dc_time_s"] == pytest.approx(cells * 24 * sample.FABRIC_S)


def test_shares_and_costs_add_up():
    figures = result_json(sample.small())

    assert sum(figures["time_shares"].values()) == pytest.approx(1)
    cost = figures["cost_per_step"]
    assert cost["total"] == cost["gpu"] + cost["egress"]
    assert figures["step_over_bound"] == figures["step_time_s"] / figures["lower_bound_s"]
    assert figures["peak_memory_bytes"] == [stage["total_bytes"] for stage in figures["memory"]]
    assert figures["num_spans"] == {"actions": 132, "transfers": 72}
