import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from geotrain.demo.scene import made_model, made_scene
from geotrain.errors import InputError
from geotrain.prefill.settings import Settings
from geotrain.serving import site as sites
from tests.serving import live

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


def test_what_live_lacks_is_named_before_anything_starts(geotrain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "openai", None)
    answer = geotrain("demo", "live", "--out", tmp_path)
    assert (answer.exit_code, answer.out) == (2, "")
    assert answer.err == "error: the live demo needs openai: pip install 'geotrain[serve,train]' openai\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seconds", ["0", "nan", "1e9"])
def test_live_refuses_a_time_that_makes_no_sense(geotrain, seconds: str):
    answer = geotrain("demo", "live", "--seconds", seconds)
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "--seconds" in answer.err


def test_live_refuses_a_place_that_cannot_be_written_first(geotrain, tmp_path: Path):
    (tmp_path / "out").write_text("")
    answer = geotrain("demo", "live", "--out", tmp_path / "out")
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)


def test_live_simulates_the_settings_of_serve(geotrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[Settings] = []

    def site(plan: object, model: object, settings: Settings, **where: Any) -> None:
        asked.append(settings)
        raise InputError("that was all")

    monkeypatch.setattr(sites, "site", site)
    plan, config = live.small_plan(), made_model(tmp_path / "tiny")
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan.dump()))
    scene = made_scene(plan, config)
    slo = f"{scene.settings.slo_s} s"
    answer = geotrain("serve", str(tmp_path / "plan.yaml"), "--model", str(tmp_path / "tiny"), "--slo", slo)
    assert answer.err.endswith("that was all\n") and asked == [scene.settings]
