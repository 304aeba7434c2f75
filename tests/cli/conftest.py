"""Running geotrain as a person does, without the cost of a process."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from geotrain.cli import main


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    exit_code: object
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def geotrain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: object) -> Answer:
        monkeypatch.setattr("sys.argv", ["geotrain", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit:
            main()
        return Answer(exit.value.code or 0, *capsys.readouterr())

    return run
