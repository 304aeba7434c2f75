"""Running generated scripts with stand-ins for the commands of a cluster."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def stand_ins(directory: Path, **scripts: str) -> dict[str, str]:
    """An environment in which these commands are scripts of ours."""
    directory.mkdir(exist_ok=True)
    for name, script in scripts.items():
        path = directory / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
    return {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """What it prints; AssertionError with its complaint if it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_script(path: Path) -> None:
    """What can be said of a script without running it."""
    run("bash", "-n", path)
    if shutil.which("shellcheck"):
        run("shellcheck", "--shell=bash", path)


def words(path: Path) -> list[str]:
    """Arguments that a stand-in has written, one per line."""
    return path.read_text().splitlines()


def value(arguments: list[str], option: str) -> str:
    """Of an option."""
    return arguments[arguments.index(option) + 1]


def require_bash() -> None:
    """Skip where there is none."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
