"""Several searches for one job, on the cluster and on what is like it, that share what they find.

What one data center brings, what one more node would bring and what to fall back to are searches of their own. None is
made twice for clusters that differ in names only, and no layout is simulated in full twice. A plan that any of them
finds is a plan for the whole cluster too, if it fits there: the best of all is the answer.
"""

from collections.abc import Hashable, Iterable
from dataclasses import replace

from geotrain.cluster import Cluster
from geotrain.planner.answer import Answer
from geotrain.planner.ask import Ask
from geotrain.planner.likeness import cluster_likeness, in_order, on_cluster, renamed
from geotrain.planner.pareto import unbeaten
from geotrain.planner.search import Plays, Watch, find_plan
from geotrain.planner.use import kind_of
from geotrain.workload import Job

_EQUAL = 1e-9
"""Plans whose scores differ by less than this share are as good as each other."""


class Searches:
    """Answers questions like `find_plan`, and remembers."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch
        self._plays: Plays = {}
        self._known: dict[Hashable, tuple[list[str], Answer]] = {}
        self._given: dict[tuple[Hashable, str], Answer] = {}

    @property
    def answers(self) -> list[Answer]:
        """All that were given, each once."""
        return list(self._given.values())

    def find(self, cluster: Cluster, job: Job, ask: Ask) -> Answer:
        """Return the best plan for the question; DoesNotFitError if there is none."""
        names = in_order(cluster)
        key = cluster_likeness(cluster, names), job.model_dump_json(), ask
        own = key, cluster.model_dump_json()
        if own not in self._given:
            if key in self._known:
                before, answer = self._known[key]
                answer = renamed(answer, dict(zip(before, names, strict=True)), cluster)
            else:
                answer = find_plan(cluster, job, ask, watch=self._watch, plays=self._plays)
                self._known[key] = names, answer
            self._given[own] = answer
        return self._given[own]


def joined(answer: Answer, found: Iterable[Answer]) -> Answer:
    """Return the answer with the best plans for other clusters or questions, as far as they can be used on its own.

    One of them may be the best of all, others the best of their kind.
    """
    goal, cluster = answer.ask.goal, answer.best.result.plan.cluster
    best, gap = answer.best, answer.gap
    others = {kind_of(scored.result.plan): scored for scored in (answer.best, *answer.others)}
    for one in found:
        scored = on_cluster(one.best, cluster)
        if scored is None:
            continue
        kind = kind_of(scored.result.plan)
        others[kind] = min(others.get(kind, scored), scored, key=lambda one: one.score(goal))
        before, after = best.score(goal)[0], scored.score(goal)[0]
        if scored.meets(answer.ask) and after < before * (1 - _EQUAL):
            best, gap = scored, max(one.gap, 1 - before * (1 - gap) / after if after else 0.0)
    others.pop(kind_of(best.result.plan))
    return replace(
        answer,
        best=best,
        others=tuple(sorted(others.values(), key=lambda one: one.score(goal))),
        frontier=tuple(unbeaten([*answer.frontier, best])),
        gap=gap,
    )
