"""The pages in docs/commands: their sessions, and their ends, which are what `--help` says.

`python -m tests.cli.pages` writes the ends anew.
"""

import doctest
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from geotrain.cli import build_app

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "commands"
INDEX = PAGES / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
WIDTH = 78
"""What a terminal of 80 columns gets, whatever the width of this one."""

_BLOCK = re.compile(r"(<!-- help -->\n).*?(<!-- /help -->\n)", re.DOTALL)
_EMPTY = "# geotrain {}\n\n## Help\n\n<!-- help -->\n<!-- /help -->\n"


def helps() -> dict[str, list[str]]:
    """The help of every command; a group's own is followed by those of what it holds."""
    top: Any = typer.main.get_command(build_app())
    context = typer.Context(top, info_name="geotrain", terminal_width=WIDTH)
    return {name: list(_texts(command, name, context)) for name, command in sorted(top.commands.items())}


def _texts(command: Any, name: str, parent: typer.Context) -> Iterator[str]:
    context = typer.Context(command, info_name=name, parent=parent)
    yield "".join(f"{line.rstrip()}\n" for line in command.get_help(context).splitlines())
    for inner, held in getattr(command, "commands", {}).items():
        yield from _texts(held, inner, context)


def page(name: str) -> Path:
    """Where the command is described."""
    return PAGES / f"{name}.md"


def sessions(text: str) -> list[tuple[str, str]]:
    """Return each command of a page's console blocks with what it prints; `...` there stands for anything."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    entries = [entry.partition("\n") for block in blocks for entry in block.split("$ ")[1:]]
    return [(command, printed) for command, _, printed in entries]


def is_as_shown(shown: str, printed: str) -> bool:
    """Tell whether the command printed what the page shows, but for spaces at the ends of lines."""
    trimmed = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    return doctest.OutputChecker().check_output(shown, trimmed, doctest.ELLIPSIS)


def refreshed(text: str, help: list[str]) -> str:
    """The page with this help between its marks, and all else as it is."""
    fences = "\n".join(f"```\n{one}```\n" for one in help)
    return _BLOCK.sub(lambda block: f"{block[1]}\n{fences}\n{block[2]}", text)


def main() -> None:
    """Bring every page up to date; a new command gets one to be filled in."""
    for name, help in helps().items():
        old = page(name).read_text(encoding="utf-8") if page(name).exists() else _EMPTY.format(name)
        new = refreshed(old, help)
        if new != old:
            page(name).write_text(new, encoding="utf-8")
            typer.echo(f"wrote {page(name).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
