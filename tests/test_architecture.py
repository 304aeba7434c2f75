"""The tree that docs/architecture.md draws is the real one."""

import re
from pathlib import Path

import geotrain

PACKAGE = Path(geotrain.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"


def drawn() -> set[str]:
    """The names two spaces deep in the fenced block that begins with `geotrain/`, without their explanations."""
    block = re.search(r"^```\w*\ngeotrain/.*?\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert block, f"{PAGE} has no fenced block that begins with geotrain/"
    entries = re.findall(r"^ {2}(\S+(?: \S+)*)", block[1], re.MULTILINE)
    return {name.rstrip("/") for entry in entries for name in entry.split()}


def real() -> set[str]:
    """Modules and folders of the package that a reader should know."""
    entries = [path for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"]
    return {path.name for path in entries if not path.name.startswith(("_", "."))}


def test_the_drawn_tree_equals_the_real_one():
    assert drawn() == real()
