import pytest

from geotrain.cluster import Cluster
from geotrain.errors import InputError
from geotrain.planner import Ask
from geotrain.planner.whatif import Point, grid, parse_axis
from geotrain.planner.whatif.address import content_of
from tests.planner.whatif.tasks import cluster, job

ONE_WAY = [{"from": "a", "to": "b", "capacity": "80 Gbit/s"}]
BOTH_WAYS = [{"between": ["a", "b"], "rtt": "20 ms"}, *ONE_WAY]


def points(*flags: str, base: Cluster | None = None) -> list[Point]:
    base, work = base or cluster(6, 3, 3), job()
    return grid(base, work, [parse_axis(flag, base, work) for flag in flags], Ask())


def refusal(*flags: str, base: Cluster | None = None) -> str:
    with pytest.raises(InputError) as error:
        points(*flags, base=base)
    return str(error.value)


def test_all_combinations_the_last_axis_fastest():
    found = points("wan.default.rtt=10,20ms", "datacenters.b.nodes=0..6:3")
    assert [(point.cluster.wan.default.rtt_s, point.cluster.datacenters[1].nodes) for point in found] == [
        (0.01, 0), (0.01, 3), (0.01, 6), (0.02, 0), (0.02, 3), (0.02, 6),
    ]  # fmt: skip
    assert [(setting.name, setting.text, setting.plain) for setting in found[-1].settings] == [
        ("wan.default.rtt", "20 ms", 0.02),
        ("datacenters.b.nodes", "6", 6),
    ]


def test_data_centers_go_by_name_and_by_number_and_cluster_may_be_said():
    assert points("cluster.datacenters.0.nodes=9")[0].cluster.datacenters[0].nodes == 9
    assert points("datacenters.c.gpu=h100")[0].cluster.datacenters[2].gpu.name == "h100"
    assert points("datacenters.c.gpu=h100")[0].settings[0].plain == "h100"
    dotted = Cluster.model_validate({"datacenters": [{"name": "us.east", "nodes": 1, "gpu": "h100"}]})
    assert points("datacenters.us.east.nodes=7", base=dotted)[0].cluster.datacenters[0].nodes == 7


def test_a_link_goes_by_its_data_centers_and_is_made_where_the_file_has_none():
    made = points("wan.links.a-b.rtt=10ms", "wan.links.c-a.rtt=90ms")[0].cluster
    assert [made.link(*ends).rtt_s for ends in [("a", "b"), ("b", "a"), ("a", "c"), ("b", "c")]] == [
        0.01, 0.01, 0.09, 0.04,
    ]  # fmt: skip
    one_way = points("wan.links.a-b.rtt=10ms", base=cluster(6, 3, links=ONE_WAY))[0].cluster
    assert (one_way.link("a", "b").rtt_s, one_way.link("b", "a").rtt_s) == (0.01, 0.04)
    by_number = points("wan.links.1.rtt=5ms", base=cluster(6, 3, links=BOTH_WAYS))[0].cluster
    assert (by_number.link("a", "b").rtt_s, by_number.link("b", "a").rtt_s) == (0.005, 0.02)


def test_unlimited_lifts_a_limit():
    found = points("wan.default.pair_cap=5Gbit/s,unlimited")
    assert [point.settings[0].plain for point in found] == [625e6, None]
    assert found[1].cluster.wan.default.pair_cap is None


def test_the_job_is_varied_too():
    assert [point.job.model.layers for point in points("job.model.layers=4,8")] == [4, 8]
    assert [point.job.model.name for point in points("job.model=gpt-a,gpt-b")] == ["gpt-a", "gpt-b"]
    batch = points("job.global_batch=64,128")[1].job
    assert (batch.global_batch, batch.microbatches) == (128, None)


def test_what_was_not_varied_stays_as_the_file_said_it():
    base = cluster(6, 3, links=[{"between": ["a", "b"], "pair_cap": None}])
    varied = points("wan.default.rtt=40ms", base=base)[0].cluster
    assert varied == base
    assert varied.link("a", "b").pair_cap is None
    assert content_of(varied) == content_of(base)


def test_the_same_question_has_the_same_key_and_another_has_another():
    short, unit = points("wan.default.rtt=0.04")[0], points("wan.default.rtt=40ms")[0]
    assert short.key == unit.key
    keys = {point.key for point in points("wan.default.rtt=10,20ms", "job.microbatches=4,8")}
    assert len(keys) == 4
    asked = Point(settings=unit.settings, cluster=unit.cluster, job=unit.job, ask=Ask(evaluations=7))
    assert asked.key != unit.key


WRONG = {
    "wan.defualt.rtt=1ms": "'defualt' is not a field of wan: did you mean 'default'?",
    "wna.default.rtt=1ms": "'wna' is not a field of a cluster file: did you mean 'wan'?",
    "datacenters.d.nodes=1": "'d' is not an entry of datacenters: known are a, b, c",
    "datacenters.3.nodes=1": "datacenters has 3 entries and no number 3; the first is number 0",
    "global_batch=8": "'global_batch' is not a field of a cluster file: did you mean 'job.global_batch'?",
    "model.layers=8": "'model' is not a field of a cluster file: did you mean 'job.model.layers'?",
    "job.model.layer=8": "'layer' is not a field of job.model: did you mean 'layers'?",
    "job.sequence.x=8": "job.sequence is a single value and has no field 'x'",
    "job.model.name=gpt-b": "a new name alone changes nothing; vary 'job.model', or a field of it",
    "job=8": "names a whole file and must name a field of it, such as 'wan.default.rtt'",
    "wan.links.b.rtt=1ms": "'b' is not an entry of wan.links: did you mean 'b-a' or 'b-c'?",
}
UNFIT = {
    "wan.default.rtt=10,20 parsec": (
        "wan.default.rtt=10 parsec: wan.default.rtt is '10 parsec' and has the unknown unit 'parsec': "
        "a time is written like '40 ms'"
    ),
    "datacenters.b.nodes=-1": "datacenters.b.nodes=-1: datacenters[1].nodes is -1 and must be at least 0",
    "datacenters.b.nodes=1.5": "datacenters.b.nodes=1.5: datacenters[1].nodes is 1.5 and must be a whole number",
    "wan.default.rtt=10ms,20": (
        "wan.default.rtt=10ms,20: '20' has no unit: write it at the end, as in '10,20,30ms', or on each value"
    ),
    "job.model=gpt-z": "job.model=gpt-z: model is 'gpt-z' and is not in the model catalog: did you mean 'gpt-b'?",
    "rtt": "rtt: must be PATH=VALUES, such as 'wan.default.rtt=10,20,40ms'",
}


@pytest.mark.parametrize("flag", WRONG)
def test_a_path_that_leads_nowhere_is_one_sentence_that_says_what_would_do(flag: str):
    assert refusal(flag) == f"--vary {flag.partition('=')[0]}: {WRONG[flag]}"


@pytest.mark.parametrize("flag", UNFIT)
def test_a_value_that_does_not_suit_its_field_is_one_sentence(flag: str):
    assert refusal(flag) == f"--vary {UNFIT[flag]}"


def test_flags_that_contradict_each_other_are_refused():
    sentence = "set the same thing: give only one of them"
    assert refusal("datacenters.a.nodes=1", "datacenters.0.nodes=2").endswith(sentence)
    assert refusal("job.microbatches=1", "job.global_batch=2").endswith(sentence)
    assert refusal("datacenters.a.nodes=1..200", "datacenters.b.nodes=1..200") == (
        "--vary asks for 40000 combinations and must ask for at most 10000"
    )


def test_an_ambiguous_link_is_refused():
    assert refusal("wan.links.a-b.rtt=1ms", base=cluster(6, 3, links=BOTH_WAYS)) == (
        "--vary wan.links.a-b.rtt: wan.links has 2 entries for 'a-b': write wan.links.0 or wan.links.1"
    )
    assert refusal("wan.links.b-a.rtt=1ms", base=cluster(6, 3, links=ONE_WAY)) == (
        "--vary wan.links.b-a.rtt: wan.links has an entry from a to b only: write wan.links.a-b"
    )
