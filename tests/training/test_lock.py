"""A directory takes one run at a time."""

import errno
import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.training.lock import Lock
from tests.training.launch.runs import python, until


def test_a_lock_names_its_holder_and_goes_with_it(tmp_path: Path):
    path = tmp_path / "run" / "launch.lock"
    script = f"from pathlib import Path; from geotrain.training.lock import Lock; import time\n\
lock = Lock(Path({str(path)!r})); time.sleep(100)"
    with subprocess.Popen(python(script)) as holder:
        until(lambda: path.exists() and path.read_text())
        with pytest.raises(InputError, match=rf"launch.lock: process {holder.pid} on .* runs into this directory"):
            Lock(path)
        holder.kill()
        holder.wait()
        Lock(path).release()
    lock = Lock(path)
    assert path.read_text().startswith(f"process {os.getpid()} on ")
    lock.release()


def test_where_nothing_can_be_locked_a_warning_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    def unable(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unable)
    Lock(tmp_path / "launch.lock").release()
    assert "launch.lock: cannot be locked: No locks available; start no other run here" in capsys.readouterr().err
