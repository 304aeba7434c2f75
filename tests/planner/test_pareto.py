from geotrain.planner import Ask, find_plan
from geotrain.planner.pareto import unbeaten, with_frontier
from tests.planner.answers import make_plan, three_datacenters

QUICK = Ask(schedule="1f1b", evaluations=5)


def test_the_frontier_goes_from_the_fastest_to_the_cheapest_and_keeps_the_answer():
    plan = make_plan(["east", "south"], used=["east", "east"])
    found = find_plan(plan.cluster, plan.job, QUICK)
    wide = with_frontier(plan.cluster, plan.job, found, find_plan, between=2)

    assert wide.best is found.best
    assert wide.evaluations > found.evaluations
    times, costs = (
        [score(one) for one in wide.frontier] for score in (lambda s: s.s_per_token, lambda s: s.cost_per_token)
    )
    assert times == sorted(times) and costs == sorted(costs, reverse=True)
    assert times[0] <= found.best.s_per_token
    assert len(set(costs)) == len(costs)


def test_what_is_slower_and_dearer_is_not_on_it():
    found = three_datacenters()
    everything = [found.best, *found.others]

    assert unbeaten(everything) == [found.best, found.others[0]]
    assert unbeaten([]) == []
