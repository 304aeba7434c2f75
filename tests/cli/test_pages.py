"""Every command has a page, its help is what the command says, and its examples print what the page shows."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.pages import INDEX, PAGES, TUTORIAL, helps, is_as_shown, page, refreshed, sessions

SAME_EVERYWHERE = (
    "catalog", "compare", "init", "plan", "prefill", "schedule", "schema", "simulate", "validate", "whatif",
)  # fmt: skip
"""Pages of commands whose output depends on their input alone."""
QUICKER = {"whatif": ["--workers", "1"]}
"""Options that change nothing in the output: starting processes takes longer than the work."""


def test_every_command_has_a_page_every_page_a_command_and_the_index_names_all():
    pages = {path.stem for path in PAGES.glob("*.md") if path != INDEX}
    assert pages == helps().keys(), (
        "`make docs` begins the page of a new command; that of an old one is for you to remove"
    )
    linked = re.findall(r"\]\(([a-z-]+)\.md\)", INDEX.read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(pages), "each page has one line in docs/commands/README.md"


def test_the_help_on_every_page_is_what_the_command_says():
    stale = []
    for name, help in helps().items():
        text = page(name).read_text(encoding="utf-8")
        assert text.count("<!-- help -->\n") == text.count("<!-- /help -->\n") == 1, (
            f"{page(name)} has no marks for help"
        )
        if refreshed(text, help) != text:
            stale.append(name)
    assert not stale, f"the help on these pages of docs/commands is stale; `make docs` mends it: {', '.join(stale)}"


@pytest.mark.parametrize("path", [TUTORIAL, *map(page, SAME_EVERYWHERE)], ids=lambda path: path.stem)
def test_the_examples_of_a_page_print_what_it_shows(
    geotrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    shown = sessions(path.read_text(encoding="utf-8"))
    assert shown
    if shown[0][0] != "geotrain init my-plan":
        geotrain("init", "my-plan")
    for command, expected in shown:
        program, name, *arguments = shlex.split(command)
        quicker = QUICKER.get(name, [])
        printed = geotrain(name, *arguments, *quicker).out if program == "geotrain" else Path(name).read_text()
        assert is_as_shown(expected, printed), f"{command} printed\n{printed}"


def test_no_page_leads_nowhere():
    for path in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path} links {target}"
