"""What is read from the logs of processes that are started again."""

from pathlib import Path

from geotrain.training.launch.logs import last_part, last_process


def test_what_a_process_said_is_found_after_another_has_begun(tmp_path: Path):
    log = tmp_path / "east-0.log"
    log.write_text("=== process 7, attempt 0\nerror: no such data\n=== process 8, attempt 1\n")
    assert last_part(log, 7) == "error: no such data\n"
    assert last_part(log, 8) == last_part(log) == last_part(log, 9) == ""
    assert last_process(log) == 8
    assert last_part(tmp_path / "none.log", 7) == ""
