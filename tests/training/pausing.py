"""`geotrain train` with pauses, so that what is done to a run certainly happens in the midst of it."""

import sys
import time
from pathlib import Path

from geotrain.cli import main
from geotrain.training import journal
from geotrain.training.options import Options
from geotrain.training.report import StepReport

PROGRAM = sys.executable, str(Path(__file__).absolute()), "train"


def pause(out: Path, steps: int) -> Path:
    """The run in that directory stops after so many steps, until the file is removed."""
    file = out / f"pause-{steps}"
    out.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


class _Pausing(journal.Journal):
    """The leading process has a journal, and the others cannot do a step without it."""

    def __init__(self, options: Options, *, quiet: bool = False) -> None:
        super().__init__(options, quiet=quiet)
        self._out = options.out

    def report(self, report: StepReport) -> None:
        super().report(report)
        while (self._out / f"pause-{report.step + 1}").exists():
            time.sleep(0.02)


if __name__ == "__main__":
    journal.Journal = _Pausing  # type: ignore[misc]
    main()
