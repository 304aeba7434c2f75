"""The command line: one module per command, found by its file name, and one place where errors become exit codes.

A command's module imports only typer and the standard library at its top, so that `--help` answers at once.
"""

import errno
import importlib
import os
import pkgutil
import sys
from typing import Annotated

import typer

from geotrain import __version__, interrupts
from geotrain.errors import GeotrainError, InputError


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"geotrain {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Plan, simulate and run language-model training across data centers joined by a WAN.

    A cluster file says what there is, a job file what is trained, a plan file what was decided.
    """


def build_app() -> typer.Typer:
    """The application with every command: a module `do_this` of this package is `geotrain do-this`.

    Its `command` is a function, or a Typer that holds several.
    """
    # Rich help and tracebacks would triple the time to the first line.
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.callback(epilog="To begin: `geotrain init DIR` writes three example files and says what to run next.")(_options)
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            name = module.name.replace("_", "-")
            command = importlib.import_module(f"{__name__}.{module.name}").command
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name)
            else:
                app.command(name)(command)
    return app


def main() -> None:
    """Run the command; an error is one line on stderr and its exit code, Ctrl-C is 130."""
    interrupts.forget()
    try:
        exit_code = build_app()(sys.argv[1:] or ["--help"], prog_name="geotrain", standalone_mode=False)
        sys.stdout.flush()
    except GeotrainError as error:
        exit_code = _complain(str(error), error.exit_code)
    except typer.TyperException as error:
        exit_code = _complain(error.format_message(), error.exit_code)
    except KeyboardInterrupt:
        exit_code = 130
    except BrokenPipeError:
        # The reader has gone; without this Python would complain about it once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_code = 1
    except Exception as error:
        if os.environ.get("GEOTRAIN_DEBUG"):
            raise
        exit_code = 130 if interrupts.asked() else _complain(*_unexpected(error))
    sys.exit(130 if interrupts.asked() else exit_code)


def _unexpected(error: Exception) -> tuple[str, int]:
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{str(error.filename)[:60]}...: is too long for a file's name", InputError.exit_code
    if isinstance(error, MemoryError):
        what = "not enough memory for this"
    else:
        what = f"unexpected {type(error).__name__}: {str(error)[:300] or 'no reason given'}"
    return f"{what}; with GEOTRAIN_DEBUG=1 in the environment the same command shows where", 1


def _complain(sentence: str, exit_code: int) -> int:
    typer.echo(f"error: {' '.join(sentence.splitlines())}", err=True)
    return exit_code
