"""A what-if at work: a story asks for points; what the notebook does not know yet goes to the workers."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

from geotrain.planner.use import listed
from geotrain.planner.whatif.grid import Point
from geotrain.planner.whatif.notebook import Notebook
from geotrain.planner.whatif.outcome import Found, Outcome, carried, plan_for
from geotrain.planner.whatif.workers import Workers

_CARRIED = 2
"""Plans of other points that are tried at a point, best first."""
_AS_GOOD = 0.9995
"""A point that is this close to another one has nothing to gain from its plan."""

Story = Generator[Sequence[Point], Sequence[Outcome], str]
"""Asks for points, is sent their outcomes, may ask for more, and ends with the answer in one sentence."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A question and its answer."""

    point: Point
    outcome: Outcome


def _nobody(done: int, asked: int) -> None:
    pass


@dataclass(kw_only=True)
class Exploration:
    """Everything found so far; `run` may be left at any time, and what was found stays."""

    workers: Workers
    notebook: Notebook
    function: Callable[[Point], Outcome] = plan_for
    watch: Callable[[int, int], None] = _nobody
    """Hears after every point how many are done, of how many."""
    asked: list[Point] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """By the points' keys."""
    sentence: str = ""

    @property
    def rows(self) -> list[Row]:
        """Finished rows in the order of the table."""
        done = [point for point in self.asked if point.key in self.outcomes]
        return [
            Row(point=point, outcome=self.outcomes[point.key]) for point in sorted(done, key=lambda point: point.order)
        ]

    def run(self, story: Story) -> None:
        """Play the story to its end."""
        points = next(story)
        while True:
            self._answer(points)
            try:
                points = story.send([self.outcomes[point.key] for point in points])
            except StopIteration as end:
                self.sentence = end.value
                return

    def _answer(self, points: Sequence[Point]) -> None:
        done = len(self.asked)
        self.asked += points
        waiting: dict[str, list[Point]] = {}
        for point in points:
            known = self.outcomes.get(point.key) or self.notebook.get(point)
            if known is None:
                waiting.setdefault(point.key, []).append(point)
            else:
                self.outcomes[point.key] = known
                done += 1
        self.watch(done, len(self.asked))
        missing = [same[0] for same in waiting.values()]
        for index, outcome in self.workers.map(self.function, missing) if missing else ():
            point = missing[index]
            self.notebook.add(point, outcome)
            self.outcomes[point.key] = outcome
            done += len(waiting[point.key])
            self.watch(done, len(self.asked))
        self._carry_over(points)

    def _carry_over(self, points: Sequence[Point]) -> None:
        """Try the best plans of points that differ in one setting: a search may miss what another one found."""
        questions = [question for point in points if (question := self._rivals(point, points)) is not None]
        for index, outcome in self.workers.map(carried, questions) if questions else ():
            point, before, _ = questions[index]
            if outcome != before:
                self.notebook.add(point, outcome)
                self.outcomes[point.key] = outcome

    def _rivals(self, point: Point, points: Sequence[Point]) -> tuple[Point, Found, tuple[str, ...]] | None:
        found, goal = self.outcomes[point.key], point.ask.goal
        if not isinstance(found, Found):
            return None
        others = [self.outcomes[other.key] for other in points if _differ_in_one(point, other)]
        better = [
            other
            for other in others
            if isinstance(other, Found) and other.score(goal) < found.score(goal) * _AS_GOOD and other.choices
        ]
        choices = dict.fromkeys(one.choices for one in sorted(better, key=lambda one: one.score(goal)))
        choices.pop(found.choices, None)
        return (point, found, tuple(choices)[:_CARRIED]) if choices else None


def _differ_in_one(point: Point, other: Point) -> bool:
    return sum(a != b for a, b in zip(point.settings, other.settings, strict=True)) == 1


def plain_grid(points: Sequence[Point]) -> Story:
    """A story that ends with the fields that made no difference; with nothing to say where all did."""
    outcomes = yield points
    idle = [axis for axis in range(len(points[0].settings)) if _is_idle(axis, points, outcomes)]
    names = listed([points[0].settings[axis].name for axis in idle] or [""])
    return f"{names} made no difference: the answer is the same for every value." if idle else ""


def _is_idle(axis: int, points: Sequence[Point], outcomes: Sequence[Outcome]) -> bool:
    """Whether several values of it were tried, and all gave the same with everything else equal."""
    found: dict[tuple[str, ...], list[Outcome]] = {}
    for point, outcome in zip(points, outcomes, strict=True):
        texts = [setting.text for setting in point.settings]
        found.setdefault((*texts[:axis], *texts[axis + 1 :]), []).append(outcome)
    return all(len(same) > 1 and all(_figures(one) == _figures(same[0]) for one in same) for same in found.values())


def _figures(outcome: Outcome) -> Outcome:
    """Without how the search went."""
    return replace(outcome, evaluations=0, gap=0.0, choices="") if isinstance(outcome, Found) else outcome
