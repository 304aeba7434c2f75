"""The README's session is what really happens, and its picture is what the command draws."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

from geotrain.cli._example import EXAMPLE

ROOT = Path(__file__).parents[1]


def sessions() -> list[tuple[str, str]]:
    """(command, expected output) of every console block."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    entries = [entry for block in blocks for entry in block.split("$ ")[1:]]
    return [(entry.split("\n", 1)[0], entry.split("\n", 1)[1]) for entry in entries]


def trimmed(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_the_session_runs_as_shown(tmp_path: Path) -> None:
    assert sessions()
    for command, expected in sessions():
        name, *arguments = command.split()
        assert name == "geotrain"
        run = subprocess.run(
            [sys.executable, "-m", "geotrain", *arguments],
            cwd=tmp_path, env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        same = doctest.OutputChecker().check_output(trimmed(expected), trimmed(run.stdout), doctest.ELLIPSIS)
        assert same, f"{command} printed\n{run.stdout}"


def test_the_picture_is_up_to_date(tmp_path: Path) -> None:
    chart = tmp_path / "compare.svg"
    command = [sys.executable, "-m", "geotrain", "compare", str(EXAMPLE / "plan.yaml"), "--chart", str(chart)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert chart.read_text() == (ROOT / "docs" / "compare.svg").read_text()
