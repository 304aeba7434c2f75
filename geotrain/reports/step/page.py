"""One step as one HTML file."""

from geotrain.reports.html.page import page
from geotrain.reports.html.sections import section, summary
from geotrain.reports.html.timeline import timeline
from geotrain.reports.step.gantt import gantt
from geotrain.reports.step.sections import links, memory, plan_details, search, stages, time_shares
from geotrain.reports.words import headline, plan_sentence
from geotrain.simulation.result import Result
from geotrain.units import format_seconds, plural


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


def _picture_text(result: Result, num_spans: int) -> str:
    timeline = result.timeline
    slots = timeline.num_pipelines * timeline.num_stages
    where = f"{plural(slots, 'slot')} and the WAN"
    return f"Timeline of {num_spans} spans on {where} over {format_seconds(result.step_time_s)}"
