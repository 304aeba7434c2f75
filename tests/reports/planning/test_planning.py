import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from geotrain.planner.ask import Ask
from geotrain.planner.explain import explain, worth
from geotrain.planner.survive import Fallback
from geotrain.reports.planning import (
    answer_json,
    answer_table,
    explanation_table,
    fallback_table,
    frontier_svg,
    frontier_table,
    placement_svg,
    planning_html,
)
from geotrain.reports.planning.answer import search_sentence
from geotrain.reports.step import html_report
from geotrain.simulation import simulate
from tests.planner.answers import answer, datacenter, make_plan, three_datacenters
from tests.reports.terminal import show

SVG = "{http://www.w3.org/2000/svg}"
LONG = ["asia-northeast-1-zone-b-building-17", "us", "europe-west-4"]


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def chain(datacenters: int, stages_each: int, unused: int = 0):
    """A pipeline through that many data centers."""
    names = [f"dc-{number}" for number in range(datacenters + unused)]
    return simulate(
        make_plan(
            names,
            used=names[:1],
            cluster={"datacenters": [datacenter(name, 64) for name in names], "wan": {"default": {"rtt": "30 ms"}}},
            job={"model": {"name": "gpt-a", "layers": datacenters * stages_each}, "microbatches": 4},
            stages=[{"dc": name, "layers": 1} for name in names[:datacenters] for _ in range(stages_each)],
            pipelines_per_cell=1,
        )
    )


def losses():
    found = three_datacenters()
    return [
        Fallback(lost="east", answer=found, reason="", tokens_per_s_lost=0.25, gpus_left=16, gpus_idle=4),
        Fallback(lost="south", answer=None, reason="too few GPUs", tokens_per_s_lost=1, gpus_left=16, gpus_idle=16),
    ]


def test_the_answer_shows_the_plan_beside_the_published_algorithm():
    found = replace(three_datacenters(), ask=Ask(tokens=3e11))
    without = {"south": found.others[0], "east": None}
    text = " ".join(show(answer_table(found, worth(found, without))).split())

    for said in (
        "gpt-b (7.27B parameters) on 16 GPUs, pipeline across east and south",
        "this plan published algorithm gain",
        "step time 846.1 ms 909.8 ms",
        "tokens/s 77.5k 36k +115.1%",
        "cost per billion tokens 471.12 809.61 -41.8%",
        "days for 300B tokens 44.8 96.4",
        "pipelines 2 per cell x 2 cells",
        "east 8 of 8 h100 0-1 4",
        "all in east 8 1.086 s 60.3k -22.1% 92.08",
        "The next data center: south is worth it: it brings 28.4% more tokens/s",
        "120 layouts considered, 4 simulations, 250 ms; no plan with stages",
        "placed in a way that was tried is more than 0.4% better.",
    ):
        assert said in text


@pytest.mark.parametrize("names", [["east", "south", "west"], LONG], ids=["short", "long-names"])
def test_everything_fits_80_columns(names):
    found = answer(
        make_plan(names, used=[names[0], names[1]]),
        make_plan(names, used=[names[0]] * 2, replicas=names[1:]),
        ask=Ask(tokens=1e12),
    )
    explanation = explain(found)
    for shown in (
        answer_table(found, worth(found)),
        explanation_table(explanation),
        frontier_table(found),
        fallback_table(losses()),
    ):
        assert max(len(line) for line in show(shown).splitlines()) <= 80


def test_without_a_published_plan_and_without_prices_there_is_less_to_show():
    plan = make_plan(
        ["east"], used=["east", "east"], cluster={"datacenters": [datacenter("east", price_per_gpu_hour=0)]}
    )
    found = answer(plan)
    text = " ".join(show(answer_table(found, worth(found))).split())

    assert "nothing fits" in text and "cost" not in text and "Runners-up" not in text


@pytest.mark.parametrize(
    ("ending", "said"),
    [("proven", "no plan with stages placed"), ("budget", "stopped by --"), ("interrupted", "the best so far")],
)
def test_how_the_search_ended_is_said(ending, said):
    assert said in search_sentence(replace(three_datacenters(), ending=ending))


def test_json_has_the_names_of_the_contract():
    found = replace(three_datacenters(), ask=Ask(tokens=1e9))
    data = json.loads(json.dumps(answer_json(found, explanation=explain(found), fallbacks=losses())))

    assert data["plan"] == found.best.result.plan.dump()
    assert data["step_time_s"] == found.best.result.step_time_s
    assert data["training_cost"] == pytest.approx(data["cost_per_billion_tokens"])
    assert data["published_algorithm"]["step_time_s"] == found.published.result.step_time_s  # type: ignore[union-attr]
    assert (data["evaluations"], data["considered"], data["search_s"], data["gap"]) == (4, 120, 0.25, 0.004)
    assert data["others"][0]["kind"] == "all in east"
    assert all(other["why_it_lost"] for other in data["others"])
    assert {"binds", "changes", "rivals"} == data["explanation"].keys()
    assert [loss["fits"] for loss in data["survive"]] == [True, False]


def test_what_was_not_asked_for_is_null():
    data = answer_json(replace(three_datacenters(), published=None))

    assert [data[name] for name in ("published_algorithm", "explanation", "survive")] == [None, None, None]


def test_the_picture_has_a_box_for_every_data_center_and_says_why_one_is_not_used():
    svg = placement_svg(three_datacenters().best.result, {"west": "it brings nothing"})
    said = texts(svg)

    for text in ("east", "south", "west", "8 of 8 GPUs (h100)", "stages 0-1: 4 layers, 2 each", "10 Gbit/s", "30 ms"):
        assert text in said
    assert "not used: it brings nothing" in said
    assert "west: not used, it brings nothing" in (ElementTree.fromstring(svg).findtext(f"{SVG}desc") or "")


def test_a_page_breaks_the_caption_of_the_picture_itself():
    answer = three_datacenters()
    page = planning_html(answer, explain(answer))
    caption = "pipeline across"
    assert caption in page.partition("<svg")[0]
    assert not any(caption in text for text in texts(placement_svg(answer.best.result, in_page=True)))
    assert any(caption in text for text in texts(placement_svg(answer.best.result)))


def test_a_stage_is_named_where_there_is_room_and_numbered_where_not():
    assert "stage 0" in texts(placement_svg(chain(1, 2, 0))) and "0" in texts(placement_svg(chain(1, 7, 0)))


@pytest.mark.parametrize(("datacenters", "stages_each", "unused"), [(1, 1, 0), (1, 60, 9), (5, 12, 2), (10, 2, 0)])
def test_boxes_do_not_overlap_and_stay_inside(datacenters, stages_each, unused):
    root = ElementTree.fromstring(placement_svg(chain(datacenters, stages_each, unused)))
    _, _, width, height = map(float, root.get("viewBox", "").split())
    boxes = [
        tuple(float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
        for rect in root.iter(f"{SVG}rect")
        if rect.get("class") in ("box", "unused")
    ]

    assert len(boxes) == datacenters + unused
    for index, (x, y, w, h) in enumerate(boxes):
        assert x >= 0 and x + w <= width and y >= 0 and y + h <= height
        for a, b, c, d in boxes[:index]:
            assert x >= a + c or a >= x + w or y >= b + d or b >= y + h


def test_a_ring_of_copies_names_the_link_that_closes_it():
    copies = simulate(make_plan(["east", "south", "west"], used=["east", "east"], replicas=["south", "west"]))

    assert any(text.startswith("also west → east: 10 Gbit/s per pair") for text in texts(placement_svg(copies)))


def test_the_frontier_is_numbered_like_its_table():
    found = three_datacenters()
    svg = ElementTree.fromstring(frontier_svg(found))
    numbers = [text.text for text in svg.iter(f"{SVG}text") if (text.text or "").isdecimal() and not text.get("class")]

    assert [line.split()[:2] for line in show(frontier_table(found)).splitlines()[3:5] if line[:1].isdigit()]
    assert numbers == ["2"]
    assert [text.text for text in svg.iter(f"{SVG}text") if text.get("class") == "chosen-text"] == ["1"]


def test_a_frontier_of_one_free_plan_is_still_a_chart():
    plan = make_plan(
        ["east"], used=["east", "east"], cluster={"datacenters": [datacenter("east", price_per_gpu_hour=0)]}
    )

    assert ElementTree.fromstring(frontier_svg(answer(plan))).tag == f"{SVG}svg"


def test_the_report_explains_the_choice_and_escapes_names():
    names = ["<east>", "south & co"]
    found = answer(make_plan(names, used=names), make_plan(names, used=names[:1] * 2))
    page = html_report(found.best.result, planning=planning_html(found, explain(found), losses(), pareto=True))

    for heading in (
        "Where the stages are",
        "The choice",
        "What binds",
        "What one more would bring, each planned anew",
        "Why the others lost",
        "If a data center is lost",
        "Time against cost",
    ):
        assert f">{heading}</h2>" in page
    assert "<east>" not in page and "&lt;east&gt;" in page


def test_the_report_marks_a_plan_that_cannot_be_trained():
    names = ["east", "south"]
    refused = answer(make_plan(names, used=names[:1] * 2))
    job = {"model": {"name": "llama-2-7b", "layers": 8}, "sequence": 2048, "microbatches": 4}
    trained = answer(make_plan(names, used=names[:1] * 2, job=job))

    page = planning_html(refused, explain(refused), runnable=trained.best)
    assert page.startswith('<div class="refused">')
    assert "Not runnable by `geotrain train`: " in page and "The best that is: all in east" in page
    assert "refused" not in planning_html(trained, explain(trained))


def test_a_report_of_a_plan_that_was_not_searched_has_none_of_it():
    assert "The choice" not in html_report(three_datacenters().best.result)
