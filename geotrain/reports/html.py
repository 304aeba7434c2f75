"""One step as one HTML file: no other file, no network, works from a mail attachment and on a phone.

Texts and charts are made here; report.css and the scripts that draw the timeline are put inside.
"""

import base64
import hashlib
import json
from html import escape
from importlib import resources
from string import Template

from geotrain import __version__
from geotrain.reports.gantt import gantt
from geotrain.reports.html_sections import cards, links, memory, plan_details, search, stages, time_shares
from geotrain.reports.words import headline, plan_sentence
from geotrain.simulation.result import Result
from geotrain.units import format_seconds

_SCRIPTS = ["report.js", "report_drawing.js", "report_input.js"]


def html_report(result: Result, *, planning: str = "") -> str:
    """The text of the file; the same Result gives the same text. `planning` are sections on how it was chosen."""
    picture = gantt(result)
    script = "".join(_asset(name) for name in _SCRIPTS)
    return Template(_asset("report.html")).substitute(
        policy=escape(_policy(script)),
        title=escape(f"geotrain: {result.plan.job.model.name}, {result.plan.schedule}"),
        css=_asset("report.css"),
        step_time=escape(format_seconds(result.step_time_s)),
        sentence=escape(plan_sentence(result.plan)),
        cards=cards(headline(result)),
        planning=planning,
        time_shares=time_shares(result),
        picture_text=escape(_picture_text(result, picture.description["spans"])),
        stages=stages(result),
        memory=memory(result),
        links=links(result),
        search=search(result),
        plan=plan_details(result),
        version=escape(__version__),
        # `<` cannot end the element early when it is written as an escape.
        description=json.dumps(picture.description, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        columns=picture.columns,
        script=script,
    )


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing may be loaded, and only our own script may run."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    own = f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _picture_text(result: Result, num_spans: int) -> str:
    timeline = result.timeline
    slots = timeline.num_pipelines * timeline.num_stages
    return f"Timeline of {num_spans} spans on {slots} slots and the WAN over {format_seconds(result.step_time_s)}"
