"""How a process of a run says what went wrong."""

import io
from contextlib import redirect_stderr
from pathlib import Path
from threading import Event

import pytest
import torch

from geotrain.errors import RunError
from geotrain.training.checkpoint import saver
from geotrain.training.idling import Listener
from geotrain.training.journal import Journal
from geotrain.training.options import Options
from geotrain.training.trainer import train
from tests.training.checkpoint.processes import in_process
from tests.training.data import VOCAB, dataset
from tests.training.plans import MODEL, plan

pytestmark = pytest.mark.slow


def fail(error: RuntimeError, out: Path) -> str:
    def listen(name: str) -> Listener:
        raise error

    options = Options(dc="east", out=out, compute="emulated")
    try:
        train(plan(["east"]), options, journal=lambda: Journal(options, quiet=True), listen=listen)
    except RunError as problem:
        return str(problem)
    return "nothing"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nframe #0"),
            "east-0: CUDA out of memory. Tried to allocate 2 GiB.",
            id="memory",
        ),
        pytest.param(RuntimeError(""), "east-0: RuntimeError", id="wordless"),
    ],
)
def test_an_error_of_torch_is_told_as_what_it_is(tmp_path: Path, error: RuntimeError, words: str):
    assert in_process(fail, error, tmp_path) == (0, words)


def save_for_ever(data: Path, out: Path) -> tuple[str, str]:
    setattr(saver, "write", lambda *_, **__: Event().wait())  # noqa: B010
    job = {"model": MODEL | {"layers": 1, "vocab": VOCAB}}
    options = Options(dc="east", out=out, data=data, steps=9, checkpoint_every=1, deadline_s=2.0)
    with redirect_stderr(io.StringIO()) as said:
        try:
            train(plan(["east"], job=job), options, journal=lambda: Journal(options, quiet=True))
        except RunError as problem:
            return str(problem), said.getvalue()
    return "nothing", ""


def test_a_checkpoint_that_takes_too_long_ends_the_run_and_nobody_says_that_it_goes_on(tmp_path: Path):
    data = dataset(tmp_path)
    code, (error, said) = in_process(save_for_ever, data, tmp_path / "run")
    assert code == 0
    assert error.endswith("checkpoints: a checkpoint is not written after 2 s")
    assert "training goes on" not in said
