import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from geotrain.plan import Plan
from geotrain.reproduction.finding import Finding, Source, command, file_of, measured, name_of

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.dictionaries(st.text(min_size=1, max_size=9), st.one_of(NUMBERS, st.text(max_size=9)), max_size=3)


@given(ROWS, NUMBERS, st.lists(NUMBERS, max_size=5), st.none() | st.integers(0, 9))
def test_what_was_written_down_is_read_again(row, value, samples, seed):
    finding = Finding(
        row=row, figure="f", value=value, unit="s", sources=(Source(command="c"),), seed=seed, samples=tuple(samples)
    )
    assert Finding.read(json.loads(json.dumps(finding.dump()))) == finding


@given(ROWS)
def test_a_setting_makes_a_name_that_any_file_may_have(row):
    assert set(name_of(row)) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-") or not name_of(row).isascii()
    assert "/" not in name_of(row)


def test_a_command_reads_files_where_they_are():
    said = command("simulate", file_of("a.yaml"), "--schedule", "auto", read=".step_time_s * 2")
    placed = Finding(row={}, figure="f", value=1.0, sources=(Source(command=said),)).at("out/plans")
    assert placed.sources[0].command == (
        "geotrain simulate out/plans/a.yaml --schedule auto --json | jq '.step_time_s * 2'"
    )


def test_a_measured_number_is_the_middle_of_its_repetitions():
    found = measured((3.0, 1.0, 2.0), row={}, figure="f")
    assert (found.value, found.samples, found.measured) == (2.0, (3.0, 1.0, 2.0), True)


def test_files_of_a_source_are_documents(example: Path):
    plan = Plan.load(example / "plan.yaml")
    assert Plan.parse(Source(command="c", files={"p.yaml": plan}).files["p.yaml"].dump(), source=example / "x") == plan
