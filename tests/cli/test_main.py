import subprocess
import sys
from typing import get_args

import pytest

from geotrain import __version__
from geotrain.cli._plan import ScheduleOption
from geotrain.errors import RunError
from geotrain.plan import ScheduleName

HOW_TO_SEE = "with GEOTRAIN_DEBUG=1 in the environment the same command shows where"


def test_version(geotrain):
    assert geotrain("--version").out == f"geotrain {__version__}\n"


def test_help_lists_the_commands_and_says_how_to_begin(geotrain):
    answer = geotrain("--help")
    assert answer == geotrain()
    assert answer.exit_code == 0
    for word in ("catalog", "init", "schema", "To begin: `geotrain init DIR`"):
        assert word in answer.out


def test_help_cuts_no_sentence_short(geotrain):
    listed = geotrain("--help").out.split("Commands:\n")[1]
    assert [line for line in listed.splitlines() if line.endswith("...")] == []


def test_the_help_of_schedule_names_every_schedule():
    help = get_args(ScheduleOption)[1].help
    assert [name for name in get_args(ScheduleName) if name not in help] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["inti"], "No such command 'inti'. Did you mean 'init'?", id="command"),
        pytest.param(["catalog", "--jsn"], "No such option: --jsn (Possible options: --json)", id="option"),
        pytest.param(["init"], "Missing argument 'DIR'.", id="argument"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(geotrain, arguments: list[str], sentence: str):
    answer = geotrain(*arguments)
    assert (answer.exit_code, answer.out, answer.err) == (2, "", f"error: {sentence}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["init", "@"],
        ["compare-runs", "@", "run"],
        ["simulate", "@"],
        ["schema", "@"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_name_that_is_too_long_is_the_users_mistake(geotrain, arguments: list[str]):
    answer = geotrain(*[argument.replace("@", "x" * 300) for argument in arguments])
    assert (answer.exit_code, answer.out) == (2, "")
    assert "too long" in answer.err


@pytest.mark.parametrize(
    ("failure", "exit_code", "err"),
    [
        pytest.param(RunError("the run\nfailed"), 1, "error: the run failed\n", id="run-error"),
        pytest.param(KeyboardInterrupt(), 130, "", id="interrupted"),
        pytest.param(MemoryError(), 1, f"error: not enough memory for this; {HOW_TO_SEE}\n", id="memory"),
        pytest.param(
            OverflowError("too\nlarge"), 1, f"error: unexpected OverflowError: too large; {HOW_TO_SEE}\n", id="overflow"
        ),
        pytest.param(
            RecursionError(), 1, f"error: unexpected RecursionError: no reason given; {HOW_TO_SEE}\n", id="recursion"
        ),
    ],
)
def test_a_failure_is_an_exit_code_without_a_stack_trace(
    geotrain, monkeypatch: pytest.MonkeyPatch, failure: BaseException, exit_code: int, err: str
):
    def command() -> None:
        raise failure

    monkeypatch.setattr("geotrain.cli.catalog.command", command)
    answer = geotrain("catalog")
    assert (answer.exit_code, answer.out, answer.err) == (exit_code, "", err)


def test_the_stack_trace_is_there_for_those_who_ask(geotrain, monkeypatch: pytest.MonkeyPatch):
    def command() -> None:
        raise OverflowError

    monkeypatch.setattr("geotrain.cli.catalog.command", command)
    monkeypatch.setenv("GEOTRAIN_DEBUG", "1")
    with pytest.raises(OverflowError):
        geotrain("catalog")


def test_a_reader_that_goes_away_is_no_error_message():
    process = subprocess.Popen(
        [sys.executable, "-m", "geotrain", "catalog", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    with process:
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_help_answers_at_once_because_commands_import_late():
    heavy = {"numba", "numpy", "pydantic", "rich", "yaml"}
    script = f"import sys; from geotrain.cli import build_app; build_app(); print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"
