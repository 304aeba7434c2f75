import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain import units
from geotrain.units import COMPUTE, RATE, SIZE, TIME, Dimension, parse


@pytest.mark.parametrize(
    ("text", "dimension", "si"),
    [
        pytest.param("40 ms", TIME, 0.04, id="milliseconds"),
        pytest.param("10us", TIME, 10e-6, id="no-space"),
        pytest.param("10 µs", TIME, 10e-6, id="micro-sign"),
        pytest.param("2 h", TIME, 7200.0, id="hours"),
        pytest.param("5 Gbit/s", RATE, 625e6, id="gigabit"),
        pytest.param("5 Gb/s", RATE, 625e6, id="small-b-is-bit"),
        pytest.param("5 GB/s", RATE, 5e9, id="large-b-is-byte"),
        pytest.param("5 gbps", RATE, 625e6, id="any-case"),
        pytest.param("1.465 MB", SIZE, 1.465e6, id="decimal-size"),
        pytest.param("80 GiB", SIZE, 80 * 2.0**30, id="binary-size"),
        pytest.param("312 TFLOP/s", COMPUTE, 312e12, id="compute"),
        pytest.param("1e-3", TIME, 1e-3, id="text-without-unit-is-si"),
        pytest.param(3, TIME, 3.0, id="number-is-si"),
    ],
)
def test_what_people_write_becomes_an_si_number(text: str, dimension: Dimension, si: float):
    assert parse(text, dimension) == si


@pytest.mark.parametrize(
    ("value", "dimension", "reason"),
    [
        pytest.param("40 mss", TIME, "has the unknown unit 'mss': did you mean \"40 ms\"?", id="typo"),
        pytest.param(
            "5 gb/s",
            RATE,
            'has the unknown unit \'gb/s\': did you mean "5 GB/s" or "5 Gb/s"?',
            id="bits-or-bytes",
        ),
        pytest.param(
            "5 furlongs", RATE, "has the unknown unit 'furlongs': a rate is written like '5 Gbit/s'", id="no-such-unit"
        ),
        pytest.param("5 GB", TIME, "has the unknown unit 'GB': a time is written like '40 ms'", id="other-dimension"),
        pytest.param("fast", RATE, "must be a rate such as '5 Gbit/s'", id="no-number"),
        pytest.param("", TIME, "must be a time such as '40 ms'", id="empty"),
        pytest.param(True, TIME, "must be a time such as '40 ms'", id="yes-is-no-number"),
        pytest.param([1], SIZE, "must be a size such as '80 GiB'", id="list"),
        pytest.param(float("nan"), TIME, "must be a finite number", id="not-a-number"),
        pytest.param("1e999 s", TIME, "must be a finite number", id="infinite"),
        pytest.param("1e31 s", TIME, "must be at most 1e+30", id="too-large"),
        pytest.param(1e-31, RATE, "must be at least 1e-30, or 0", id="too-small"),
    ],
)
def test_what_cannot_be_read_is_answered_with_a_hint(value: object, dimension: Dimension, reason: str):
    with pytest.raises(ValueError) as caught:
        parse(value, dimension)
    assert str(caught.value) == reason


numbers = st.floats(min_value=1e-9, max_value=1e15)


@given(numbers, st.sampled_from([TIME, SIZE, RATE, COMPUTE]), st.data())
def test_any_number_in_any_unit_is_its_factor_in_si(number: float, dimension: Dimension, data: st.DataObject):
    unit = data.draw(st.sampled_from(sorted(dimension.units)))
    assert parse(f"{number!r} {unit}", dimension) == pytest.approx(number * dimension.units[unit], rel=1e-12)


@given(numbers)
def test_a_plain_number_is_kept_to_the_last_bit(number: float):
    assert parse(number, TIME) == parse(repr(number), TIME) == number


@pytest.mark.parametrize(
    ("format_it", "dimension"),
    [
        pytest.param(units.format_seconds, TIME, id="time"),
        pytest.param(units.format_bytes, SIZE, id="memory"),
        pytest.param(units.format_traffic, SIZE, id="traffic"),
        pytest.param(units.format_rate, RATE, id="rate"),
        pytest.param(lambda flops: units.format_flops(flops) + "/s", COMPUTE, id="compute"),
    ],
)
@given(number=st.floats(min_value=1.0, max_value=1e15))
def test_what_is_shown_can_be_read_back(format_it, dimension: Dimension, number: float):
    assert parse(format_it(number), dimension) == pytest.approx(number, rel=1e-3)


def test_numbers_are_shown_in_the_unit_that_keeps_them_short():
    shown = [
        units.format_bytes(80 * 2.0**30),
        units.format_traffic(33554432),
        units.format_rate(625e6),
        units.format_rate(float("inf")),
        units.format_flops(1.92e12),
    ]
    assert shown == ["80 GiB", "33.55 MB", "5 Gbit/s", "unlimited", "1.92 TFLOP"]


def test_times_are_shown_as_people_say_them():
    times_s = [0, 0.0125, 65.16, 119, 120, 1243, 7560, 2 * 86400 - 3600, 2357 * 3600]
    shown = ["0 ns", "12.5 ms", "65.16 s", "119 s", "2 min", "20.72 min", "2.1 h", "47 h", "98.21 d"]
    assert list(map(units.format_seconds, times_s)) == shown
