from pathlib import Path

import pytest

FILES = ["compare.svg", "report.html", "trace.json"]


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_demo_writes_its_files_and_says_what_to_open(geotrain, tmp_path: Path):
    answer = geotrain("demo")
    lines = answer.out.splitlines()
    assert answer.exit_code == 0
    assert lines[0] == "Every schedule on the same GPUs"
    assert "Atlas in detail" in lines
    assert lines[-4:] == [
        "report: out/report.html  (open it in a browser)",
        "trace:  out/trace.json  (open it at ui.perfetto.dev)",
        "chart:  out/compare.svg",
        "your own: geotrain init my-plan",
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES
    assert all(path.stat().st_size for path in (tmp_path / "out").iterdir())


def test_json_is_that_of_compare_and_simulate_together(geotrain, tmp_path: Path):
    answer = geotrain("demo", "--json", "--out", "elsewhere")
    assert answer.err == ""
    assert list(answer.json) == ["compare", "simulate"]
    assert answer.json["simulate"]["schedule"] == "atlas"
    atlas = min(row["step_time_s"] for row in answer.json["compare"]["rows"] if row["schedule"] == "atlas")
    assert answer.json["simulate"]["step_time_s"] == atlas
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == FILES


def test_a_place_that_cannot_be_written_is_one_sentence(geotrain, tmp_path: Path):
    (tmp_path / "out").write_text("")
    answer = geotrain("demo", "--json")
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith("error: out/compare.svg: cannot be written: ")
