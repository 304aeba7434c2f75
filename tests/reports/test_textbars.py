from geotrain.reports.textbars import bar, cells, stacked


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
