"""Every command has a page, and its help is what the command says."""

import re

from tests.cli.pages import INDEX, PAGES, helps, page, refreshed


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


def test_no_page_leads_nowhere():
    for path in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path} links {target}"
