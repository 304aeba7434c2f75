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
    assert Plan.load(directory / "plan.yaml").cluster.name == "three-dcs"


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
    assert yaml.safe_load(job.read_text())["model"] == "gpt-a"


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
