"""Two processes that share every layer of a part, over gloo."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model.rank import CASES

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]


def test_two_processes_compute_what_one_does(tmp_path: Path):
    command = [sys.executable, "-W", "error", "-m", "tests.model.rank"]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        found = [json.loads(rank.communicate(timeout=110)[0]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for answer in found:
        assert len(answer["differences"]) == 2 * len(CASES)
        assert {case: gap for case, gap in answer["differences"].items() if not gap < 1e-5} == {}
        assert answer["exchanges"] == [2, 2], "attention and feed-forward reduce once each, forward and backward"
