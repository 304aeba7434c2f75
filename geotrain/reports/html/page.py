"""A page as one HTML file: no other file, no network, works from a mail attachment and on a phone.

Texts and charts are made before; page.css and the scripts that draw the timeline are put inside.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from string import Template

from geotrain import __version__
from geotrain.reports.html.asset import asset
from geotrain.reports.html.timeline import Gantt

_SCRIPTS = ["timeline.js", "timeline_drawing.js", "timeline_input.js"]


def page(
    *, title: str, heading: str, lead: Iterable[str], parts: Iterable[str], picture: Gantt | None = None, css: str = ""
) -> str:
    """A report around its parts, which are HTML; the other texts are not, and are escaped here.

    Only a picture needs scripts.
    """
    script = "".join(asset(__package__, name) for name in _SCRIPTS) if picture else ""
    return Template(asset(__package__, "page.html")).substitute(
        policy=escape(_policy(script)),
        title=escape(title),
        css=asset(__package__, "page.css") + css,
        heading=escape(heading),
        lead="\n".join(f'<p class="lead">{escape(sentence)}</p>' for sentence in lead),
        main="\n".join(parts),
        version=escape(__version__),
        scripts=_scripts(picture, script) if picture else "",
    )


def _scripts(picture: Gantt, script: str) -> str:
    # `<` cannot end the element early when it is written as an escape.
    description = json.dumps(picture.description, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<script type="application/json" id="description">{description}</script>\n'
        f'<script type="text/plain" id="columns">{picture.columns}</script>\n<script>{script}</script>\n'
    )


def _policy(script: str) -> str:
    """Nothing may be loaded, and only our own script may run."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    own = f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
