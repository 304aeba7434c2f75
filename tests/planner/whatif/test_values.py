import pytest

from geotrain.planner.whatif.values import parse_values


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("10,20,30,40ms", ["10 ms", "20 ms", "30 ms", "40 ms"]),
        ("10 ms, 2 s", ["10 ms", "2 s"]),
        ("10us,1,2ms", ["10 us", "1 ms", "2 ms"]),
        ("1,5 Gbit/s,unlimited", ["1 Gbit/s", "5 Gbit/s", None]),
        ("0..600:200", [0, 200, 400, 600]),
        ("0..500:200", [0, 200, 400]),
        ("3..1", [3, 2, 1]),
        ("0.1..0.3:0.1", [0.1, 0.2, 0.3]),
        ("10..30:10ms", ["10 ms", "20 ms", "30 ms"]),
        ("10ms..30ms:10ms", ["10 ms", "20 ms", "30 ms"]),
        ("0,10..30:10,100", [0, 10, 20, 30, 100]),
        ("4,8.0,1e3", [4, 8.0, 1000.0]),
        ("h100,a100-80gb", ["h100", "a100-80gb"]),
        ("true,false", [True, False]),
    ],
)
def test_lists_and_ranges(text: str, contents: list[object]):
    values = [value.content for value in parse_values(text)]
    assert values == contents
    assert list(map(type, values)) == list(map(type, contents))


def test_a_value_is_shown_as_people_write_it():
    assert [value.text for value in parse_values("0..1:0.5Gbit/s,2.50ms")] == [
        "0 Gbit/s",
        "0.5 Gbit/s",
        "1 Gbit/s",
        "2.5 ms",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("10ms,20", "'20' has no unit: write it at the end, as in '10,20,30ms', or on each value"),
        ("1,,2", "a value is missing: write them like '10,20,30ms' or '0..600:100'"),
        ("5..", "the range '5..' must be written like '0..600:100' or '10..40:10ms'"),
        ("0..9:0", "the range '0..9:0' has the step 0 and must have one above 0"),
        ("0..1e9", "the range '0..1e9' has 1000000001 values and must have at most 10000"),
        ("1s..9ms:1ms", "the range '1s..9ms:1ms' has several units and must have one"),
        ("5,5", "'5' is given twice"),
    ],
)
def test_what_is_wrong_is_said(text: str, complaint: str):
    with pytest.raises(ValueError) as error:
        parse_values(text)
    assert str(error.value) == complaint
