from pathlib import Path

import pytest

from geotrain.demo.process import started
from geotrain.errors import RunError
from geotrain.files import read_text


def test_a_process_lasts_as_long_as_its_block(tmp_path: Path):
    log = tmp_path / "log"
    with started(log, ["wan", "serve", "--insecure", "--port", 0]) as process:
        assert process.until(log, r"(\d+)", 30.0)
        assert process.running
    assert not process.running


def test_a_process_that_fails_has_last_words(tmp_path: Path):
    with (
        pytest.raises(RunError, match=r"geotrain simulate: ended with 2: error: nowhere.yaml: "),
        started(tmp_path / "log", ["simulate", "nowhere.yaml"]) as process,
    ):
        process.until(tmp_path / "never", "(never)", 30.0)
    assert not process.running


def test_a_process_that_is_never_ready_is_an_error(tmp_path: Path):
    with (
        pytest.raises(RunError, match="not ready after 0 s"),
        started(tmp_path / "log", ["wan", "serve", "--insecure", "--port", 0]) as process,
    ):
        process.until(tmp_path / "log", "(never)", 0.0)
    assert not process.running


def test_one_that_is_done_is_waited_for(tmp_path: Path):
    with started(tmp_path / "log", ["--version"]) as process:
        process.finish(30.0)
    assert read_text(tmp_path / "log").startswith("geotrain ")
