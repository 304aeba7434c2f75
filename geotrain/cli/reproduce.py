"""`geotrain reproduce`: the published claims again, with this software."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geotrain import interrupts
from geotrain.cli._output import JsonOption, check_writable, print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from geotrain.reproduction import Outcome


def command(
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller grids, and nothing that needs the testbed: under 3 minutes.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this experiment; may be repeated.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Name the experiments and their questions.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the page, results and plan files go.")] = Path(
        "out/reproduce"
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Do everything again, whatever was found before.")] = False,
    write_docs: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="Also write the tables as a page of the docs.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Redo the published results of Atlas and BubbleTea.

    Ours are put beside them. Each experiment is a small file of the package: what is asked, under which conditions,
    what was published and how far that can be trusted. Simulated numbers are the same in every run; measured ones
    (testbed: root or user namespaces) carry their repetitions. DIR/index.html shows all, with the command that prints
    each number.

    A run that was ended goes on where it was: results are kept in DIR/results until experiment or code change. All of
    it takes up to 30 minutes on two quiet cores.

    Examples:

        geotrain reproduce --quick

        geotrain reproduce --only atlas-one-connection --only utilization

        geotrain reproduce --fresh --write-docs docs/results.md
    """
    from geotrain.errors import InputError
    from geotrain.files import place_of, write_text
    from geotrain.reports.reproduction import (
        experiments_table,
        reproduction_html,
        reproduction_json,
        reproduction_markdown,
        reproduction_table,
    )
    from geotrain.reproduction import chosen, load

    names = chosen(only or [], quick=quick)
    if listed:
        every = [(name, load(name)) for name in names]
        if json:
            print_json([{"name": name, "question": one.question, "part": one.part} for name, one in every])
        else:
            _show(experiments_table([(name, one.question, one.quick is not None) for name, one in every]))
        return
    if out.is_file() or any(parent.is_file() for parent in out.parents):
        raise InputError(f"--out is {str(out)!r}, where a file is in the way of the directory")
    try:
        str(place_of(out)).encode()
    except UnicodeEncodeError:
        raise InputError(f"--out is {str(out)!r} and must be a name in UTF-8, for the report contains it") from None
    check_writable(write_docs, inputs=[])
    outcomes = _played(names, out, quick=quick, fresh=fresh)
    if not outcomes:
        return
    if interrupts.asked():
        write_docs = None
    write_text(out / "index.html", reproduction_html(outcomes))
    if write_docs is not None:
        made_with = f"geotrain reproduce{' --quick' * quick}{''.join(f' --only {name}' for name in only or [])}"
        write_text(write_docs, reproduction_markdown(outcomes, made_with=made_with))
    if json:
        print_json(reproduction_json(outcomes))
        return
    _show(reproduction_table(outcomes))
    typer.echo(f"page: {out / 'index.html'}  (open it in a browser)")
    if write_docs is not None:
        typer.echo(f"docs: {write_docs}")


def _played(names: Sequence[str], out: Path, *, quick: bool, fresh: bool) -> list[Outcome]:
    """One after the other, up to Ctrl-C; a line on stderr about each."""
    from geotrain.reproduction import play
    from geotrain.units import format_seconds

    outcomes: list[Outcome] = []
    try:
        with interrupts.remembered():
            for number, name in enumerate(names, start=1):
                told = f"[{number}/{len(names)}] {name} ... "
                typer.echo(told, err=True, nl=False)
                outcome = play(name, out, quick=quick, fresh=fresh, watch=_counter(told))
                said = f"not measured: {outcome.missing}" if outcome.missing else format_seconds(outcome.took_s)
                typer.echo(f"{len(outcome.findings)} numbers, {said}{' (kept)' * outcome.kept}", err=True)
                outcomes.append(outcome)
    except KeyboardInterrupt:
        interrupts.remember()
        typer.echo(f"\ninterrupted: {len(outcomes)} of {len(names)} are done; run it again to go on", err=True)
    return outcomes


def _counter(told: str) -> Callable[[int], None]:
    """Counts numbers behind the words, on a terminal."""
    import sys

    if not sys.stderr.isatty():
        return lambda _: None
    return lambda number: typer.echo(f"\r{told}{number} numbers\r{told}", err=True, nl=False)


def _show(what: object) -> None:
    from rich.console import Console

    Console(highlight=False).print(what)
