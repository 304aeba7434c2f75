"""One step as one HTML file: no other file, no network, works from a mail attachment and on a phone.

Texts and charts are made here; report.css and the scripts that draw the timeline are put inside.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from importlib import resources
from string import Template

from geotrain import __version__
from geotrain.reports.gantt import Gantt, gantt
from geotrain.reports.html_sections import (
    links,
    memory,
    plan_details,
    search,
    section,
    stages,
    summary,
    time_shares,
)
from geotrain.reports.words import headline, plan_sentence
from geotrain.simulation.result import Result
from geotrain.units import format_seconds, plural

_SCRIPTS = ["report.js", "report_drawing.js", "report_input.js"]


def html_report(result: Result, *, planning: str = "") -> str:
    """The text of the file; the same Result gives the same text. `planning` are sections on how it was chosen."""
    picture = gantt(result)
    parts = [
        summary(headline(result)),
        planning,
        section("time", "Where the GPUs' time went", time_shares(result)),
        timeline(_picture_text(result, picture.description["spans"])),
        section("stages", "How busy the stages are", stages(result)),
        section("memory", "Peak memory of a GPU", memory(result)),
        section("links", "WAN links", links(result)),
        search(result),
        section("plan", "The plan", plan_details(result)),
    ]
    return page(
        title=f"geotrain: {result.plan.job.model.name}, {result.plan.schedule}",
        heading=f"One training step takes {format_seconds(result.step_time_s)}",
        lead=[plan_sentence(result.plan)],
        parts=parts,
        picture=picture,
    )


def page(
    *, title: str, heading: str, lead: Iterable[str], parts: Iterable[str], picture: Gantt | None = None, css: str = ""
) -> str:
    """A report around its parts, which are HTML; the other texts are not, and are escaped here.

    Only a picture needs scripts.
    """
    script = "".join(asset(name) for name in _SCRIPTS) if picture else ""
    return Template(asset("report.html")).substitute(
        policy=escape(_policy(script)),
        title=escape(title),
        css=asset("report.css") + css,
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


def timeline(picture_text: str, note: str = "") -> str:
    """The section that the scripts draw the page's picture in."""
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    return Template(asset("report_timeline.html")).substitute(picture_text=escape(picture_text), note=said)


def asset(name: str) -> str:
    """The text of a file beside this one."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing may be loaded, and only our own script may run."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    own = f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _picture_text(result: Result, num_spans: int) -> str:
    timeline = result.timeline
    slots = timeline.num_pipelines * timeline.num_stages
    where = f"{plural(slots, 'slot')} and the WAN"
    return f"Timeline of {num_spans} spans on {where} over {format_seconds(result.step_time_s)}"
