from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.validation.rows import table


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(table({"name": "small"}, {"name": "large", "global_batch": 128, "seconds": 4.5}))
    return path


def test_published_step_times_are_shown_with_both_models_and_their_sources(geotrain):
    answer = geotrain("validate")
    assert answer.exit_code == 0
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert lines[0] == "run published s predicted s error trivial"
    assert len([line for line in lines if line.startswith(("Megatron", "Korthikanti"))]) == 18
    assert "18 rows mean error median worst rank correlation" in lines
    assert any(line.startswith("trivial: FLOPs x (1 + (P - 1) / M) at 52.5% of peak") for line in lines)
    assert any(line.startswith("[1] Narayanan et al. 2021") for line in lines)
    assert any(line.startswith("[2] Korthikanti et al. 2022") for line in lines)
    assert max(map(len, answer.out.splitlines())) <= 80


def test_the_page_about_it_shows_what_the_command_says(geotrain, tmp_path: Path):
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "validation.md").read_text()
    chart = tmp_path / "validation.svg"
    out = geotrain("validate", "--chart", chart).out
    shown = "\n".join(line.rstrip() for line in out.splitlines() if not line.startswith("chart:"))
    assert f"$ geotrain validate\n{shown}\n" in page
    assert chart.read_text() == (docs / "validation.svg").read_text()


def test_json_has_the_names_of_the_contract(geotrain):
    answer = geotrain("validate", "--json").json
    assert len(answer["rows"]) == 18
    assert set(answer["rows"][0]) == {
        "name", "published_s", "predicted_s", "error", "trivial_s", "trivial_error", "source"
    }  # fmt: skip
    for row in answer["rows"]:
        assert row["error"] == pytest.approx(row["predicted_s"] / row["published_s"] - 1)
        assert row["trivial_error"] == pytest.approx(row["trivial_s"] / row["published_s"] - 1)
    errors = [abs(row["error"]) for row in answer["rows"]]
    assert answer["mean_abs_error"] == pytest.approx(sum(errors) / 18)
    assert answer["mean_abs_error"] < 0.10 < answer["trivial"]["mean_abs_error"]
    assert answer["rank_correlation"] > 0.98
    assert "calibration" not in answer


def test_a_persons_own_runs_are_measured_not_published(geotrain, runs: Path):
    answer = geotrain("validate", runs)
    assert answer.exit_code == 0
    assert "measured s" in answer.out
    assert f"[1] {runs}" in answer.out.replace("\n", "")
    rows = geotrain("validate", runs, "--json").json["rows"]
    assert [(row["name"], row["published_s"]) for row in rows] == [("small", 2.5), ("large", 4.5)]


def test_one_row_has_no_order(geotrain, runs: Path):
    runs.write_text(table({}))
    assert geotrain("validate", runs, "--json").json["rank_correlation"] is None
    assert geotrain("validate", runs).exit_code == 0


def test_a_fitted_rule_is_written_shown_and_used(geotrain, runs: Path, tmp_path: Path):
    rule = tmp_path / "out" / "rule.yaml"
    answer = geotrain("validate", runs, "--calibrate", rule)
    assert answer.exit_code == 0
    assert "after, each row held out" in answer.out
    assert f"rule:  {rule}  (put it into a job file)" in answer.out

    fitted = geotrain("validate", runs, "--calibrate", rule, "--json").json
    written = yaml.safe_load(rule.read_text())["efficiency"]
    assert fitted["calibration"]["efficiency"] == written
    assert fitted["calibration"]["before"]["mean_abs_error"] == pytest.approx(fitted["mean_abs_error"])
    after = fitted["calibration"]["after"]["mean_abs_error"]
    assert after < fitted["mean_abs_error"]
    errors = [abs(row["calibrated_error"]) for row in fitted["rows"]]
    assert after == pytest.approx(sum(errors) / 2)

    again = geotrain("validate", runs, "--efficiency", rule, "--json").json
    assert again["mean_abs_error"] == pytest.approx(after)


def test_a_fitted_rule_goes_into_a_job(geotrain, example: Path, tmp_path: Path):
    rule = tmp_path / "rule.yaml"
    rule.write_text("efficiency: {matmul: 0.5, memory: 0.5}\n")
    before = geotrain("simulate", example / "plan.yaml", "--json").json["step_time_s"]
    job = example / "job.yaml"
    job.write_text(job.read_text() + rule.read_text())
    assert geotrain("simulate", example / "plan.yaml", "--json").json["step_time_s"] > before


def test_the_chart_is_svg_with_a_point_for_each_row_and_model(geotrain, tmp_path: Path):
    chart = tmp_path / "chart.svg"
    answer = geotrain("validate", "--chart", chart)
    assert f"chart: {chart}" in answer.out
    svg = ElementTree.parse(chart).getroot()
    circles = [element.get("class") for element in svg.iter("{http://www.w3.org/2000/svg}circle")]
    assert circles.count("ours") == circles.count("trivial") == 18 + 1
    title = svg.find("{http://www.w3.org/2000/svg}title")
    assert title is not None and title.text == "Predicted against published step time"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["gone.csv"], "error: gone.csv: no such file", id="no-file"),
        pytest.param(["bad.csv"], "error: bad.csv: line 2: seconds is '-1' and must be above 0", id="bad-row"),
        pytest.param(["--efficiency", "bad.csv"], "error: bad.csv: efficiency is missing", id="no-rule"),
        pytest.param(
            ["--efficiency", "one.yaml", "--calibrate", "out.yaml"],
            "error: --efficiency gives the single figure 0.5 and must give a rule of several",
            id="nothing-to-fit",
        ),
    ],
)
def test_bad_input_is_one_sentence(geotrain, tmp_path, monkeypatch, arguments: list[str], sentence: str):
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text(table({"seconds": -1}))
    Path("one.yaml").write_text("efficiency: 0.5\n")
    answer = geotrain("validate", *arguments)
    assert answer.exit_code == 2
    assert answer.err.startswith(sentence)
    assert answer.err.count("\n") == 1
    assert not Path("out.yaml").exists()
