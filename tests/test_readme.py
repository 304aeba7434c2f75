"""The README's session is what really happens, and its picture is what the command draws."""

import os
import subprocess
import sys
from pathlib import Path

from geotrain.cli._example import EXAMPLE
from tests.cli.pages import is_as_shown, sessions

ROOT = Path(__file__).parents[1]


def test_the_session_runs_as_shown(tmp_path: Path) -> None:
    shown = sessions((ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown
    for command, expected in shown:
        name, *arguments = command.split()
        assert name == "geotrain"
        run = subprocess.run(
            [sys.executable, "-m", "geotrain", *arguments],
            cwd=tmp_path, env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert is_as_shown(expected, run.stdout), f"{command} printed\n{run.stdout}"


def test_the_picture_is_up_to_date(tmp_path: Path) -> None:
    chart = tmp_path / "compare.svg"
    command = [sys.executable, "-m", "geotrain", "compare", str(EXAMPLE / "plan.yaml"), "--chart", str(chart)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert chart.read_text() == (ROOT / "docs" / "compare.svg").read_text()
