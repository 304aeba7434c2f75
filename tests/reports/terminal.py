"""What a terminal would show."""

from io import StringIO

from rich.console import Console


def show(renderable, width=80):
    page = StringIO()
    Console(width=width, file=page, no_color=True, force_terminal=False).print(renderable)
    return page.getvalue()
