"""Ctrl-C ends every search at once, with what it has found so far, exit code 130 and no stack trace."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from geotrain.simulation import kernel
from geotrain.simulation.play import Board

pytestmark = pytest.mark.slow


SEARCHES = [
    pytest.param(["plan", "cluster.yaml", "job.yaml", "--pareto"], id="plan"),
    pytest.param(["plan", "cluster.yaml", "job.yaml", "--explain", "--survive", "dc"], id="plan-explain"),
    pytest.param(["compare", "plan.yaml"], id="compare"),
    pytest.param(["simulate", "plan.yaml", "--schedule", "auto", "--jitter", "5%"], id="simulate"),
    pytest.param(
        ["whatif", "cluster.yaml", "job.yaml", "--vary", "wan.default.rtt=10,20ms", "--workers", "1"], id="whatif"
    ),
    pytest.param(
        ["reproduce", "--quick", "--only", "ablation", "--only", "bandwidth", "--out", "found"], id="reproduce"
    ),
    pytest.param(["schedule", "plan.yaml", "--schedule", "auto"], id="schedule"),
    pytest.param(
        ["prefill", "simulate", "plan.yaml", "azure-code", "--duration", "1 s", "--schedule", "auto"], id="prefill"
    ),
]


@pytest.fixture(autouse=True)
def in_example(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


class Forgetful:
    """Ctrl-C that comes while an object goes away, where Python drops the exception, as in a compiler's callback."""

    def __del__(self) -> None:
        press()


def press_at(monkeypatch: pytest.MonkeyPatch, number: int, how: Callable[[], object]) -> list[int]:
    """Press Ctrl-C in that simulation of the command; the list has an entry for each simulation."""
    played: list[int] = []
    play = Board.play

    def counted(board: Board, *arguments: object, **more: object) -> object:
        played.append(len(played))
        if len(played) == number:
            how()
        return play(board, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Board, "play", counted)
    return played


@pytest.mark.parametrize("how", [press, Forgetful], ids=["raised", "lost"])
@pytest.mark.parametrize("number", [1, 2, 5, 50])
@pytest.mark.parametrize("arguments", SEARCHES)
def test_ctrl_c_ends_a_search_at_once(
    geotrain, monkeypatch: pytest.MonkeyPatch, arguments: list[str], number: int, how: Callable[[], object]
):
    played = press_at(monkeypatch, number, how)
    answer = geotrain(*arguments)
    assert len(played) >= number, "the command ended before Ctrl-C"
    assert answer.exit_code == 130
    assert "Traceback" not in answer.err
    assert len(played) < number + 15


def test_ctrl_c_in_compiled_code_is_ctrl_c(geotrain, monkeypatch: pytest.MonkeyPatch):
    played: list[int] = []
    play = kernel.play

    def compiled(*arguments: object) -> object:
        played.append(len(played))
        if len(played) == 50:
            inner = SystemError("returned a result with an exception set")
            inner.__cause__ = KeyboardInterrupt()
            raise SystemError("returned a result with an exception set") from inner
        return play(*arguments)

    monkeypatch.setattr(kernel, "play", compiled)
    answer = geotrain("simulate", "plan.yaml", "--schedule", "auto")
    assert answer.exit_code == 130
    assert "step time" in answer.out and answer.err.startswith("interrupted: this is the best so far")


def test_what_was_found_is_shown(geotrain, monkeypatch: pytest.MonkeyPatch):
    press_at(monkeypatch, 50, press)
    answer = geotrain("simulate", "plan.yaml", "--schedule", "auto")
    assert "step time" in answer.out
    assert answer.err == "interrupted: this is the best so far; what was still to be done is left out\n"


def test_reproduce_keeps_what_is_done_and_goes_on_from_there(geotrain, monkeypatch: pytest.MonkeyPatch):
    asked = ["reproduce", "--quick", "--only", "bandwidth", "--only", "ablation", "--out", "found"]
    with monkeypatch.context() as patched:
        press_at(patched, 60, press)
        answer = geotrain(*asked)
    assert answer.exit_code == 130
    assert answer.err.endswith("interrupted: 1 of 2 are done; run it again to go on\n")
    assert [path.stem for path in Path("found/results").iterdir()] == ["bandwidth"]
    assert Path("found/index.html").exists()
    assert "(kept)" in geotrain(*asked).err


def test_prefill_leaves_out_what_was_not_played_to_its_end(geotrain, monkeypatch: pytest.MonkeyPatch):
    def pressed(*_: object) -> None:
        press()

    monkeypatch.setattr("geotrain.simulation.prefill.study._fixed", pressed)
    answer = geotrain("prefill", "simulate", "plan.yaml", "azure-code", "--duration", "1 s", "--json")
    assert answer.exit_code == 130
    assert answer.json["baselines"].keys() == {"none", "reactive"}
    assert answer.err == "interrupted: ways of filling that were not played to their end are left out\n"


def test_the_next_command_knows_nothing_of_it(geotrain, monkeypatch: pytest.MonkeyPatch):
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patched:
        press_at(patched, 50, press)
        assert geotrain("compare", "plan.yaml").exit_code == 130
    assert geotrain("compare", "plan.yaml").exit_code == 0
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", [3, 20])
@pytest.mark.parametrize("arguments", SEARCHES)
def test_a_signal_from_outside_does_the_same(arguments: list[str], number: int):
    script = f"""
import signal, sys, time
from geotrain.cli import main
from geotrain.simulation.play import Board
play, played = Board.play, []
def slowly(*arguments, **more):
    played.append(1)
    if len(played) == {number}:
        print("NOW", file=sys.stderr, flush=True)
    if len(played) >= {number}:
        time.sleep(0.05)
    return play(*arguments, **more)
Board.play = slowly
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["geotrain", *{arguments!r}]
main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "NOW" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=50)
    assert process.returncode == 130, err
    assert "Traceback" not in err
