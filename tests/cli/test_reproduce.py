import pytest


def test_the_list_names_every_experiment(geotrain):
    answer = geotrain("reproduce", "--list", "--json")
    assert answer.exit_code == 0
    assert {"bandwidth", "utilization", "training-testbed"} <= {one["name"] for one in answer.json}
    assert "bandwidth" in geotrain("reproduce", "--list", "--quick").out


def test_claims_stand_beside_ours_and_files_are_written(geotrain, tmp_path):
    out, docs = tmp_path / "out", tmp_path / "results.md"
    wanted = ("--only", "bandwidth", "--quick", "--out", out, "--write-docs", docs)
    answer = geotrain("reproduce", *wanted)
    assert answer.exit_code == 0
    assert "[1/1] bandwidth ... 16 numbers" in answer.err
    assert "293 Mbit/s" in answer.out and "holds" in answer.out
    assert (out / "index.html").read_text().startswith("<!DOCTYPE html>")
    assert "| one connection at 10 ms | 1,220 Mbit/s, ±5% | 1,172 Mbit/s | holds | memory |" in docs.read_text()

    again = geotrain("reproduce", *wanted, "--json")
    assert "(kept)" in again.err
    (experiment,) = again.json["experiments"]
    assert experiment["claims"][0] == {
        "says": "one connection at 10 ms",
        "published": 1220.0,
        "unit": "Mbit/s",
        "ours": 1172.0,
        "verdict": "holds",
        "trust": "memory",
        "source": "paper, section on motivation",
    }
    assert experiment["findings"][0]["commands"] == [
        f"geotrain simulate {out}/plans/bandwidth/rtt-ms-10-one.yaml --json | jq '.wan[0].rate_bytes_per_s * 8 / 1e6'"
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--only", "bandwith"], "did you mean 'bandwidth'?", id="unknown"),
        pytest.param(["--only", "wan-testbed", "--quick"], "which --quick leaves out", id="not-quick"),
        pytest.param(["--only", "bandwidth", "--out", "file"], "a file is in the way", id="out-is-a-file"),
        pytest.param(["--only", "bandwidth", "--write-docs", "dir"], "is a directory", id="docs-is-a-directory"),
    ],
)
def test_mistakes_are_one_sentence(geotrain, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "dir").mkdir()
    answer = geotrain("reproduce", *arguments)
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err


def test_a_directory_whose_name_the_report_cannot_contain_is_refused_first(geotrain, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, said in (("r\udcff", "must be a name in UTF-8"), ("loop", "a symbolic link in it leads to itself")):
        answer = geotrain("reproduce", "--quick", "--only", "cost", "--out", tmp_path / name)
        assert answer.exit_code == 2 and said in answer.err and not (tmp_path / name).exists()
