"""Files that are put inside pages."""

from importlib import resources


def asset(package: str, name: str) -> str:
    """The text of a file of a package of ours."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
