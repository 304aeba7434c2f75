from geotrain.reports.schedule import ComparisonRow, comparison_table
from tests.reports.terminal import show

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
