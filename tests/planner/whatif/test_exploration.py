import json
from dataclasses import replace
from pathlib import Path

import pytest

from geotrain.errors import InputError, RunError
from geotrain.planner import Ask
from geotrain.planner.whatif import (
    Exploration,
    Found,
    InProcess,
    Notebook,
    Outcome,
    Point,
    grid,
    parse_axis,
    plain_grid,
    plan_for,
)
from geotrain.planner.whatif.variants import with_nodes
from geotrain.units import RATE, parse
from tests.planner.whatif.tasks import arithmetic, cluster, job


class Counting:
    """A planner that knows how often it was asked, and may fail the n-th time."""

    def __init__(self, fail_at: int = -1, error: type[BaseException] = RunError) -> None:
        self.asked = 0
        self.fail_at, self.error = fail_at, error

    def __call__(self, point: Point) -> Outcome:
        if self.asked == self.fail_at:
            raise self.error
        self.asked += 1
        return arithmetic(point)


def points(flag: str = "datacenters.b.nodes=0..5") -> list[Point]:
    base, work = cluster(6, 3), job()
    return grid(base, work, [parse_axis(flag, base, work)], Ask())


def explore(path: Path | None = None, planner: Counting | None = None, asked: list[Point] | None = None) -> Exploration:
    with Notebook(path) as notebook:
        exploration = Exploration(workers=InProcess(), notebook=notebook, function=planner or Counting())
        exploration.run(plain_grid(asked or points()))
    return exploration


def test_rows_are_in_the_order_of_the_points_and_progress_counts_them():
    seen: list[tuple[int, int]] = []
    exploration = Exploration(
        workers=InProcess(), notebook=Notebook(), function=arithmetic, watch=lambda *now: seen.append(now)
    )
    exploration.run(plain_grid(points()))
    assert [row.point.settings[0].plain for row in exploration.rows] == [0, 1, 2, 3, 4, 5]
    assert seen == [(done, 6) for done in range(7)]


def test_a_question_asked_twice_is_answered_once():
    planner = Counting()
    exploration = explore(planner=planner, asked=[*points(), *points()])
    assert (planner.asked, len(exploration.rows)) == (6, 12)


def test_a_second_run_finds_everything_in_the_notebook(tmp_path: Path):
    first = explore(tmp_path / "a.jsonl")
    planner = Counting()
    second = explore(tmp_path / "a.jsonl", planner)
    assert planner.asked == 0
    assert [row.outcome for row in second.rows] == [row.outcome for row in first.rows]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RunError])
def test_what_was_done_before_the_end_came_is_kept(tmp_path: Path, error: type[BaseException]):
    planner = Counting(fail_at=2, error=error)
    with Notebook(tmp_path / "a.jsonl") as notebook, pytest.raises(error):
        exploration = Exploration(workers=InProcess(), notebook=notebook, function=planner)
        exploration.run(plain_grid(points()))
    assert len(exploration.rows) == len((tmp_path / "a.jsonl").read_text().splitlines()) >= 2

    again = Counting()
    explore(tmp_path / "a.jsonl", again)
    assert again.asked == 6 - len(exploration.rows)


@pytest.mark.parametrize("left", [1, 9, 100])
def test_a_line_that_a_crash_cut_short_is_dropped_and_done_again(tmp_path: Path, left: int):
    path = tmp_path / "a.jsonl"
    explore(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]) + lines[5][:left])
    planner = Counting()
    explore(path, planner)
    assert planner.asked == 1
    assert path.read_text() == "".join(lines)


def test_a_file_of_somebody_else_is_refused_and_left_alone(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    for text in ("name: two\nwan:\n", "name", '{"key": 1}\n', '[1]\n{"key": "', "é", "\xe9\n"):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(InputError, match=r"cluster\.yaml: "):
            Notebook(path)
        assert path.read_text(encoding="latin-1") == text
    with pytest.raises(InputError, match="cannot be written: "):
        Notebook(path / "a.jsonl")


def test_a_line_says_what_was_varied(tmp_path: Path):
    explore(tmp_path / "a.jsonl")
    first = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    assert first["settings"] == {"datacenters.b.nodes": 0}
    assert first["key"] == points()[0].key


def overlooks_b_where_pairs_are_fast(point: Point) -> Outcome:
    """A planner that misses the best plan."""
    fast = point.cluster.wan.default.pair_cap == parse("400 Gbit/s", RATE)
    return plan_for(replace(point, cluster=with_nodes(point.cluster, {"b": 0})) if fast else point)


def test_a_plan_that_one_search_finds_is_tried_where_another_missed_it(tmp_path: Path):
    base, work = cluster(4, 4), job(microbatches=8)
    asked = grid(base, work, [parse_axis("wan.default.pair_cap=100,400Gbit/s", base, work)], Ask(schedule="1f1b"))
    with Notebook(tmp_path / "points.jsonl") as notebook:
        exploration = Exploration(workers=InProcess(), notebook=notebook, function=overlooks_b_where_pairs_are_fast)
        exploration.run(plain_grid(asked))
    slow, fast = (row.outcome for row in exploration.rows)
    alone = overlooks_b_where_pairs_are_fast(asked[1])
    assert isinstance(slow, Found) and isinstance(fast, Found) and isinstance(alone, Found)
    assert alone.tokens_per_s < slow.tokens_per_s <= fast.tokens_per_s
    assert set(alone.datacenters) == {"a"} and set(fast.datacenters) == {"a", "b"}
    with Notebook(tmp_path / "points.jsonl") as notebook:
        assert notebook.get(asked[1]) == fast
