from pathlib import Path

import yaml

from geotrain.plan import Plan

FILES = [
    "cluster.yaml",
    "job.yaml",
    "plan.yaml",
    "cluster.schema.json",
    "job.schema.json",
    "plan.schema.json",
]


def test_init_writes_a_plan_that_loads_and_says_what_to_run_next(geotrain, tmp_path: Path):
    directory = tmp_path / "new"
    answer = geotrain("init", directory)
    wrote = [f"wrote {directory / name}" for name in FILES]
    assert answer.out.splitlines() == [*wrote, "", f"next: geotrain simulate {directory / 'plan.yaml'}"]
    assert Plan.load(directory / "plan.yaml").cluster.name == "first"


def test_every_data_center_of_the_example_pays(geotrain, tmp_path: Path):
    geotrain("init", tmp_path)
    cluster = yaml.safe_load((tmp_path / "cluster.yaml").read_text())
    rates = []
    for number in (1, 2, 3):
        some = cluster | {"datacenters": cluster["datacenters"][:number]}
        (tmp_path / "some.yaml").write_text(yaml.safe_dump(some))
        answer = geotrain(
            "plan", tmp_path / "some.yaml", tmp_path / "job.yaml", "-o", tmp_path / "best.yaml", "--json"
        ).json
        rates.append(answer["tokens_per_s"])
        assert len({stage["dc"] for stage in answer["plan"]["stages"]}) == number
    assert rates[1] > 1.2 * rates[0] and rates[2] > 1.2 * rates[1]


def test_each_file_tells_the_editor_its_schema(geotrain, tmp_path: Path):
    geotrain("init", tmp_path)
    for name in ("cluster", "job", "plan"):
        first = (tmp_path / f"{name}.yaml").read_text().splitlines()[0]
        assert first == f"# yaml-language-server: $schema={name}.schema.json"
        assert (tmp_path / f"{name}.schema.json").exists()


def test_init_keeps_what_exists_unless_forced(geotrain, tmp_path: Path):
    job = tmp_path / "job.yaml"
    job.write_text("mine")
    answer = geotrain("init", tmp_path)
    assert (answer.exit_code, answer.err) == (2, f"error: {job}: exists already; --force replaces it\n")
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]
    assert geotrain("init", tmp_path, "--force").exit_code == 0
    assert yaml.safe_load(job.read_text())["model"] == "llama-3.1-8b"


def test_json_names_the_files_and_the_next_step(geotrain, tmp_path: Path):
    assert geotrain("init", tmp_path, "--json").json == {
        "files": [str(tmp_path / name) for name in FILES],
        "next": f"geotrain simulate {tmp_path / 'plan.yaml'}",
    }


def test_a_directory_that_cannot_be_made_is_one_sentence(geotrain, tmp_path: Path):
    (tmp_path / "file").write_text("")
    answer = geotrain("init", tmp_path / "file")
    assert answer.exit_code == 2
    assert answer.err.startswith(f"error: {tmp_path / 'file' / 'cluster.yaml'}: cannot be written: ")
