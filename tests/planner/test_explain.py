from itertools import permutations

import pytest

from geotrain.planner.ask import Ask
from geotrain.planner.explain import binds, explain, next_datacenter, worth
from geotrain.planner.rivals import why_it_lost
from tests.planner.answers import answer, datacenter, make_plan, three_datacenters

NAMES = ["east", "south", "west"]


def test_what_binds_names_the_stage_the_waits_the_fullest_memory_and_the_busiest_link():
    result = three_datacenters().best.result
    bound, waits, memory, link = binds(result)
    assert bound.startswith("No schedule of this layout with one chunk of layers per stage takes less than ")

    assert f"{result.step_over_bound:.3f} times that" in bound
    assert f"wait {result.shares.wan:.1%} for the WAN" in waits
    assert memory.startswith("Memory is fullest on stage ") and "GiB of 75.2 GiB" in memory
    assert link.startswith("The busiest link is ") and "10 Gbit/s per pair" in link


def test_in_one_data_center_there_is_no_link_to_speak_of():
    alone = answer(make_plan(["east"], used=["east", "east"]))

    assert not any("link" in sentence for sentence in binds(alone.best.result))
    assert next_datacenter(worth(alone)) == "east is the only data center there is."


def test_a_data_center_is_worth_what_the_best_plan_without_it_lacks():
    found = three_datacenters()
    best, alone = found.best, found.others[0]
    by_name = {one.dc: one for one in worth(found, {"south": alone, "east": None})}

    assert by_name["south"].used
    assert by_name["south"].change == pytest.approx(alone.s_per_token / best.s_per_token - 1)
    assert by_name["south"].tokens_per_s == alone.result.tokens_per_s
    assert (by_name["east"].change, by_name["east"].reason) == (None, "nothing fits without it")
    assert not by_name["west"].used
    assert (by_name["west"].change, by_name["west"].reason) == (None, "the best plan does without it")


def test_the_next_data_center_is_the_used_one_that_brings_least_and_then_the_ones_left_out():
    found = three_datacenters()
    sentence = next_datacenter(worth(found, {"south": found.others[0], "east": found.others[2]}))

    assert sentence.startswith("south is worth it: it brings ")
    assert sentence.endswith("; west is left out: the best plan does without it.")


def test_a_data_center_without_which_things_go_as_well_is_not_worth_it():
    found = three_datacenters()
    as_good = worth(found, {"south": found.best, "east": None})

    assert next_datacenter(as_good).startswith("south is not worth it: it brings 0.0% more tokens/s")


def test_plans_that_the_search_met_say_nothing_about_a_data_center():
    """A plan without it that happened to be simulated may be far from the best without it."""
    worths = worth(three_datacenters())

    assert all(one.change is None for one in worths)
    assert next_datacenter(worths).startswith(
        "what each brings was not looked for, as the search is long; --survive dc looks for it"
    )


def test_why_the_others_lost_says_gpus_waits_and_money():
    found = three_datacenters()
    published, alone, _, data_parallel = (rival.reason for rival in explain(found).rivals)

    assert "it uses 8 GPUs instead of 16" in published and "waiting for the WAN takes" in published
    assert "less cost per token" in alone and "it uses 8 GPUs instead of 16 (8 in south are left over)" in alone
    assert "the all-reduce takes" in data_parallel and "times the cost per token" in data_parallel


def test_the_published_plan_is_no_rival_of_itself():
    plan = make_plan(NAMES, used=["east", "east"])

    assert explain(answer(plan, published=plan)).rivals == ()


def test_for_the_least_cost_the_reason_is_money():
    cheap, dear = make_plan(NAMES, used=["east", "east"]), make_plan(NAMES, used=["east", "south"])
    found = answer(cheap, dear, ask=Ask(goal="cost"))

    assert "its egress adds" in why_it_lost(found.best, found.others[0], found.ask)


def test_the_same_gpus_in_another_order_are_no_reason():
    plan = make_plan(["east", "south"], used=["east", "east"])
    kinds = [datacenter("east"), datacenter("south", gpu="a100-80gb")]
    cluster = {"datacenters": kinds, "wan": plan.cluster.wan}
    ways = [["east", "south"], ["south", "east"], ["south", "south"]]
    first, turned, slower = (make_plan(["east", "south"], used=used, cluster=cluster) for used in ways)
    found = answer(first, turned, slower)

    for one, other in permutations((found.best, found.others[0])):
        assert "GPUs of" not in why_it_lost(one, other, found.ask)
    assert "(GPUs of a100-80gb instead of a100-80gb/h100)" in why_it_lost(found.best, found.others[1], found.ask)


def test_a_plan_that_misses_the_deadline_says_so():
    fast, slow = make_plan(NAMES, used=["east", "east"], cells=2), make_plan(NAMES, used=["east", "east"])
    found = answer(fast, slow)
    ask = Ask(tokens=1e9, deadline_s=found.best.s_per_token * 1e9)

    assert "too slow for the deadline" in why_it_lost(found.best, found.others[0], ask)
