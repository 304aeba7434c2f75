import dataclasses
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from geotrain.cli._progress import Line
from geotrain.cluster import Cluster
from geotrain.planner import Answer, Ask, Progress, find_plan
from geotrain.planner.likeness import on_cluster
from geotrain.planner.survive import cluster_of
from geotrain.workload import Job
from tests.editing import replace
from tests.planner.answers import three_datacenters


@pytest.fixture(autouse=True)
def beside_the_files(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named as a person in that directory names them."""
    monkeypatch.chdir(example)


@pytest.fixture
def two_used(example: Path) -> None:
    """South and west are so near, and the steps so long, that a second data center pays."""
    cluster = example / "cluster.yaml"
    cluster.write_text(cluster.read_text().replace("nodes: 6 ", "nodes: 3 "))
    replace(cluster, "rtt: 40 ms", "rtt: 1 ms")
    replace(cluster, "pair_cap: 5 Gbit/s", "pair_cap: 100 Gbit/s")
    replace(example / "job.yaml", "microbatches: 4 ", "microbatches: 32 ")


def test_the_plan_that_is_written_simulates_to_what_was_promised(geotrain, example: Path):
    promised = geotrain("plan", "cluster.yaml", "job.yaml", "-o", "found.yaml", "--json").json
    simulated = geotrain("simulate", "found.yaml", "--json").json

    assert simulated["step_time_s"] == promised["step_time_s"]
    assert simulated["tokens_per_s"] == promised["tokens_per_s"]
    assert yaml.safe_load((example / "found.yaml").read_text()) == promised["plan"]


def test_the_file_says_what_made_it_and_the_same_command_makes_the_same_bytes(geotrain, example: Path):
    command = ("plan", "cluster.yaml", "job.yaml", "-o", "found.yaml")
    geotrain(*command)
    first = (example / "found.yaml").read_bytes()
    geotrain(*command)

    assert (example / "found.yaml").read_bytes() == first
    origin = yaml.safe_load(first)["made_by"]
    assert origin["command"] == "geotrain plan cluster.yaml job.yaml -o found.yaml"
    assert list(origin["inputs"]) == ["cluster.yaml", "job.yaml"]


def test_json_has_the_names_and_types_of_the_contract(geotrain):
    answer = geotrain("plan", "cluster.yaml", "job.yaml", "--json")
    contract = {
        "plan": dict,
        "step_time_s": float,
        "tokens_per_s": float,
        "cost_per_billion_tokens": float,
        "evaluations": int,
        "search_s": float,
        "published_algorithm": dict,
        "gap": float,
        "ending": str,
        "considered": int,
        "others": list,
        "frontier": list,
    }

    assert (answer.exit_code, answer.err) == (0, "")
    assert {name: type(answer.json[name]) for name in contract} == contract
    assert answer.json["tokens_per_s"] >= answer.json["published_algorithm"]["tokens_per_s"]


def test_text_says_the_plan_the_gain_and_that_nothing_was_written(geotrain):
    answer = geotrain("plan", "cluster.yaml", "job.yaml", "--explain")

    assert (answer.exit_code, answer.err) == (0, "")
    for said in ("published algorithm", "Data centers", "The next data center: ", "layouts considered", "What binds"):
        assert said in answer.out
    assert answer.out.splitlines()[-1] == "nothing written; -o plan.yaml keeps the plan"


def test_report_and_pictures_are_written(geotrain, example: Path):
    geotrain("plan", "cluster.yaml", "job.yaml", "--report", "plan.html", "--chart", "places.svg")
    geotrain("plan", "cluster.yaml", "job.yaml", "--pareto", "--chart", "frontier.svg", "--json")

    assert "What one more would bring" in (example / "plan.html").read_text()
    titles = [ElementTree.parse(example / name).getroot()[0].text for name in ("places.svg", "frontier.svg")]
    assert titles == ["Data centers, stages and links", "Time against cost"]


@pytest.mark.usefixtures("two_used")
def test_a_plan_for_every_loss_is_written_beside_the_plan(geotrain, example: Path):
    answer = geotrain("plan", "cluster.yaml", "job.yaml", "-o", "found.yaml", "--survive", "dc", "--schedule", "1f1b")
    used = {stage["dc"] for stage in yaml.safe_load((example / "found.yaml").read_text())["stages"]}
    used |= {copy["dc"] for copy in yaml.safe_load((example / "found.yaml").read_text()).get("replicas", [])}

    assert len(used) > 1
    assert "If a data center is lost" in answer.out
    for name in used:
        text = (example / f"found.without-{name}.yaml").read_text()
        assert f"after the loss of {name}" in text.splitlines()[0]
        assert name not in [dc["name"] for dc in yaml.safe_load(text)["cluster"]["datacenters"]]
        assert geotrain("simulate", f"found.without-{name}.yaml", "--json").exit_code == 0


def test_ctrl_c_ends_the_search_with_the_best_so_far(geotrain, monkeypatch: pytest.MonkeyPatch):
    pressed: list[Progress] = []

    def interrupt(_line: Line, progress: Progress) -> None:
        if progress.best is not None and not pressed:
            pressed.append(progress)
            raise KeyboardInterrupt

    monkeypatch.setattr(Line, "watch", interrupt)
    answer = geotrain("plan", "cluster.yaml", "job.yaml")

    assert answer.exit_code == 130
    assert "interrupted: this is the best so far" in " ".join(answer.out.split())


def test_ctrl_c_after_the_search_keeps_the_plan(geotrain, example: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("geotrain.planner.sensitivity.sensitivity", interrupt)
    answer = geotrain("plan", "cluster.yaml", "job.yaml", "--explain", "-o", "found.yaml", "--report", "plan.html")

    assert answer.exit_code == 130
    assert answer.err == "interrupted: the plan stands; what was still being looked for is left out\n"
    assert "What binds" in answer.out and "What one more would bring was not looked for." in answer.out
    assert (example / "found.yaml").exists() and (example / "plan.html").exists()


@pytest.mark.usefixtures("two_used")
def test_a_search_that_is_not_made_says_why(geotrain, monkeypatch: pytest.MonkeyPatch):
    command = ("plan", "cluster.yaml", "job.yaml", "--schedule", "1f1b")
    budget = " ".join(geotrain(*command, "--budget", "0.001 ms").out.split())
    assert "what each brings was not looked for, as --budget ended the search; --survive dc looks for it" in budget

    monkeypatch.setattr("geotrain.cli._plan_search._MOST_LAYOUTS", 1)
    long = " ".join(geotrain(*command).out.split())
    assert "what each brings was not looked for, as the search is long; --survive dc looks for it" in long


@pytest.mark.usefixtures("two_used")
def test_a_better_plan_that_a_search_without_a_data_center_finds_is_the_answer(
    geotrain, monkeypatch: pytest.MonkeyPatch
):
    """The first search is cut short; what the later ones find on fewer data centers is much better."""
    command = ("plan", "cluster.yaml", "job.yaml", "--schedule", "1f1b", "--explain", "--json")
    whole = geotrain(*command).json

    def cut_short(cluster: Cluster, job: Job, ask: Ask, **options: Any) -> Answer:
        first = len(cluster.datacenters) == 3 and sum(dc.nodes for dc in cluster.datacenters) == 9
        if not first:
            return find_plan(cluster, job, ask, **options)
        alone = find_plan(cluster_of(cluster, {"west"}), job, ask)
        slow = on_cluster(alone.best, cluster)
        assert slow is not None
        return dataclasses.replace(alone, best=slow, published=None, others=(), frontier=(slow,))

    monkeypatch.setattr("geotrain.planner.searches.find_plan", cut_short)
    found = geotrain(*command).json
    assert len(whole["datacenters"]) == 3
    assert len(found["datacenters"]) == 2
    assert found["tokens_per_s"] < whole["tokens_per_s"]
    assert all(one["change"] is None or one["change"] >= 0 for one in found["worth"])
    assert all(other["tokens_per_s"] <= found["tokens_per_s"] for other in found["others"])
    assert {one["kind"] for one in found["others"]} >= {"all in west"}


def test_the_line_on_a_terminal_says_how_far_the_search_has_come():
    line = Line()
    assert str(line.__rich__()) == "planning 0 s (Ctrl-C: take the best so far)"

    line.watch(Progress(evaluations=4, elapsed_s=1.0, best=three_datacenters().best, gap=0.04))
    assert str(line.__rich__()) == (
        "planning 0 s · 4 simulated · best 846.1 ms, 77.5k tokens/s · gap 4.0% (Ctrl-C: take the best so far)"
    )


def test_a_deadline_asks_for_the_cheapest_in_time(geotrain):
    free = geotrain("plan", "cluster.yaml", "job.yaml", "--goal", "cost", "--tokens", "1B", "--json").json
    fastest = geotrain("plan", "cluster.yaml", "job.yaml", "--tokens", "1B", "--json").json
    between = (fastest["training_time_s"] + free["training_time_s"]) / 2
    kept = geotrain("plan", "cluster.yaml", "job.yaml", "--tokens", "1B", "--deadline", f"{between}s", "--json").json

    assert kept["goal"] == "cost"
    assert kept["training_time_s"] <= between
    assert free["training_cost"] <= kept["training_cost"] <= fastest["training_cost"]


def test_a_job_that_fits_nowhere_says_how_near_it_came_and_what_would_help(geotrain, example: Path):
    replace(example / "job.yaml", "name: gpt-a,", "name: megatron-76b,")
    answer = geotrain("plan", "cluster.yaml", "job.yaml")

    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert (
        "on a100-80gb in 'east' with tensor_parallel 1, needs 105.3 GiB per GPU and there are 80 GiB, of which"
        in answer.err
    )
    assert "what would make it fit: 8 more nodes of a100-80gb in 'east'" in answer.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--deadline", "30d"], "--deadline is '30d' and needs --tokens: of how many tokens, such as '300B'"),
        (["--tokens", "lots"], "--tokens is 'lots' and must be a number such as '300B'"),
        (["--tokens", "0"], "--tokens is '0' and must be above 0"),
        (["--tokens", "3Q"], "--tokens is '3Q' and has the unknown unit 'Q': a number is written like '300B'"),
        (["--budget", "soon"], "--budget is 'soon' and must be a time such as '40 ms'"),
        (["--schedule", "vruna"], "--schedule is 'vruna': did you mean 'varuna'?"),
        (["--stages", "9"], "--stages is 9 and must be at most 4, the layers of job.yaml"),
        (["-o", "."], ".: is a directory, expected a file to write"),
        (["-o", "job.yaml/x.yaml"], "job.yaml/x.yaml: cannot be written: a part of the path is a file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_with_an_option_is_one_sentence(geotrain, options, sentence):
    answer = geotrain("plan", "cluster.yaml", "job.yaml", *options)

    assert (answer.exit_code, answer.out, answer.err) == (2, "", f"error: {sentence}\n")


def test_files_in_the_wrong_order_are_one_sentence(geotrain):
    answer = geotrain("plan", "job.yaml", "cluster.yaml")

    assert (answer.exit_code, answer.err.count("\n")) == (2, 1)
    assert answer.err.startswith("error: job.yaml: ")


def test_a_plan_that_cannot_be_trained_is_marked_and_the_best_that_can_stands_beside_it(geotrain, example: Path):
    (example / "job.yaml").write_text("{model: {name: llama-2-7b, layers: 4}, sequence: 2048, microbatches: 512}")
    answer = geotrain("plan", "cluster.yaml", "job.yaml", "--json").json
    assert answer["plan"]["replicas"] and not answer["runnable"]
    assert answer["not_runnable_because"][0].startswith("the plan has replicas")
    assert answer["best_runnable"]["runnable"]
    assert answer["best_runnable"]["tokens_per_s"] < answer["tokens_per_s"]

    found = geotrain("plan", "cluster.yaml", "job.yaml", "-o", "found.yaml", "--report", "found.html")
    assert "Not runnable by `geotrain train`: the plan has replicas" in Path("found.html").read_text()
    text = " ".join(found.out.split())
    assert "Not runnable by `geotrain train`: the plan has replicas" in text and "The best that is: " in text
    assert geotrain("launch", "found.yaml", "--on", "local", "--out", "run", "--dry-run").exit_code == 2

    geotrain("plan", "cluster.yaml", "job.yaml", "--across", "pipeline", "-o", "found.yaml")
    slurm = ("--on", "slurm", "--control", "east-1:29400")
    assert geotrain("launch", "found.yaml", *slurm, "--out", "run", "--dry-run").exit_code == 0


TIGHT = "{model: {name: llama-2-13b, layers: 20}, sequence: 4096, microbatches: 16, recompute: none}"
"""Memory limits how many microbatches are in flight."""


def test_a_plan_leaves_room_for_a_model_so_that_prefill_works_beside_it(geotrain, example: Path):
    (example / "job.yaml").write_text(TIGHT)
    find = ["plan", "cluster.yaml", "job.yaml", "-o", "found.yaml", "--evaluations", 20]
    play = ["prefill", "simulate", "found.yaml", "azure-conversation", "--rate", "5/s", "--duration", "5 s"]
    play += ["--only-ours", "--model", "llama-3.1-8b", "--json"]
    geotrain(*find)
    refused = geotrain(*play)
    assert refused.exit_code == 2 and "llama-3.1-8b needs 14.96 GiB for its weights and does not fit" in refused.err

    said = geotrain(*find, "--leave-room-for", "llama-3.1-8b").out
    assert "prefill room     16.21 GiB of each GPU" in said
    plan = yaml.safe_load((example / "found.yaml").read_text())
    assert plan["prefill_room"] > 8.03e9 * 2
    for memory in geotrain("simulate", "found.yaml", "--json").json["memory"]:
        assert memory["total_bytes"] <= memory["limit_bytes"] * (1 + 1e-9)
        assert memory["limit_bytes"] == pytest.approx(0.94 * 80 * 2**30 - plan["prefill_room"])
    assert geotrain(*play).exit_code == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(
            ["--leave-room-for", "llama-3.1-70b"],
            "job.yaml on cluster.yaml: no plan leaves room for llama-3.1-70b, which takes 134.4 GiB of each GPU with "
            "tensor_parallel 1; the job alone would fit",
            id="too-large",
        ),
        pytest.param(
            ["--leave-room-for", "llama-3.1-9b"],
            "--leave-room-for is 'llama-3.1-9b' and is not in the model catalog: did you mean 'llama-3.1-8b'?",
            id="unknown",
        ),
        pytest.param(
            ["--leave-room-for", "llama-3.1-8b", "--across", "data"],
            "--leave-room-for goes with --across pipeline: prefill is not yet played beside replicas",
            id="replicas",
        ),
    ],
)
def test_room_that_cannot_be_left_is_a_sentence(geotrain, example: Path, options: list[str], sentence: str):
    (example / "job.yaml").write_text(TIGHT)
    answer = geotrain("plan", "cluster.yaml", "job.yaml", *options)
    assert (answer.exit_code, answer.out, answer.err) == (2, "", f"error: {sentence}\n")


@pytest.mark.usefixtures("two_used")
def test_what_a_data_center_is_worth_is_a_plan_without_it(geotrain, example: Path):
    """The same figures from `plan` on a cluster without it, from `--survive dc` and from `whatif`."""
    asked = ("--schedule", "1f1b", "--json")
    found = geotrain("plan", "cluster.yaml", "job.yaml", "--survive", "dc", *asked).json
    used = {one["dc"]: one for one in found["worth"] if one["used"]}
    losses = {one["lost"]: one for one in found["survive"]}
    stories = geotrain("whatif", "cluster.yaml", "job.yaml", "--story", "lose-dc", "--workers", 1, *asked).json["rows"]
    added = geotrain("whatif", "cluster.yaml", "job.yaml", "--story", "add-dc", "--workers", 1, *asked).json["rows"]
    whole = yaml.safe_load((example / "cluster.yaml").read_text())

    assert len(used) > 1 and used.keys() == losses.keys()
    assert added[-1]["tokens_per_s"] == found["tokens_per_s"]
    for name, one in used.items():
        left = {**whole, "datacenters": [dc for dc in whole["datacenters"] if dc["name"] != name]}
        left["wan"] = {"default": whole["wan"]["default"]}
        (example / "left.yaml").write_text(yaml.safe_dump(left))
        alone = geotrain("plan", "left.yaml", "job.yaml", *asked).json
        (story,) = (row for row in stories if row["lost_datacenter"] == name)
        assert one["tokens_per_s"] == alone["tokens_per_s"] == losses[name]["tokens_per_s"] == story["tokens_per_s"]
        assert one["cost_per_billion_tokens"] == alone["cost_per_billion_tokens"]
        assert one["change"] == pytest.approx(found["tokens_per_s"] / alone["tokens_per_s"] - 1)


@pytest.mark.usefixtures("two_used")
def test_the_best_plan_in_one_data_center_is_among_the_runners_up(geotrain, example: Path):
    asked = ("--schedule", "1f1b", "--json")
    others = {one["kind"]: one for one in geotrain("plan", "cluster.yaml", "job.yaml", *asked).json["others"]}
    whole = yaml.safe_load((example / "cluster.yaml").read_text())
    for dc in whole["datacenters"]:
        single = {"datacenters": [dc], "wan": {"default": whole["wan"]["default"]}}
        (example / "single.yaml").write_text(yaml.safe_dump(single))
        best = geotrain("plan", "single.yaml", "job.yaml", *asked).json
        assert others[best["kind"]]["tokens_per_s"] == best["tokens_per_s"]
        assert others[best["kind"]]["left_out"]
