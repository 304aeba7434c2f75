"""The frontier of time against cost: the fastest plan, the cheapest one, and the cheapest in between.

Between the two ends deadlines are set at even ratios, and each is asked for its cheapest plan; whatever those searches
simulated on the way counts too.
"""

from collections.abc import Sequence
from dataclasses import replace

from geotrain.cluster import Cluster
from geotrain.errors import DoesNotFitError
from geotrain.planner.answer import Answer, Find, Scored
from geotrain.workload import Job

_BETWEEN = 6


def with_frontier(cluster: Cluster, job: Job, answer: Answer, find: Find, *, between: int = _BETWEEN) -> Answer:
    """The same answer with a frontier that was looked for; limits of the question are kept."""
    ask = answer.ask
    other = find(cluster, job, replace(ask, goal="cost" if ask.goal == "time" else "time"))
    fastest, cheapest = (answer, other) if ask.goal == "time" else (other, answer)
    found = [answer, other]
    for deadline in _deadlines(fastest.best.s_per_token, cheapest.best.s_per_token, between):
        tokens = ask.tokens or 1.0
        asked = replace(ask, goal="cost", tokens=tokens, deadline_s=deadline * tokens)
        if asked.most_cost_per_token != ask.most_cost_per_token:
            asked = replace(asked, max_cost=ask.most_cost_per_token * tokens)
        try:
            found.append(find(cluster, job, asked))
        except DoesNotFitError:  # nothing between the two
            continue
    return replace(
        answer,
        frontier=tuple(unbeaten([scored for one in found for scored in (one.best, *one.frontier)])),
        evaluations=sum(one.evaluations for one in found),
        considered=sum(one.considered for one in found),
        search_s=sum(one.search_s for one in found),
    )


def _deadlines(fast: float, slow: float, between: int) -> list[float]:
    """Seconds per token, evenly spaced in ratio, without the ends."""
    if slow <= fast * 1.001:
        return []
    return [fast * (slow / fast) ** (number / (between + 1)) for number in range(1, between + 1)]


def unbeaten(scored: Sequence[Scored]) -> list[Scored]:
    """What nothing else beats in both time and cost, fastest first."""
    kept: list[Scored] = []
    for one in sorted(scored, key=lambda one: one.score("time")):
        if not kept or one.cost_per_token < kept[-1].cost_per_token * (1 - 1e-9):
            kept.append(one)
    return kept
