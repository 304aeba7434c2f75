"""The files that `geotrain plan` writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from geotrain.cli._output import check_writable

if TYPE_CHECKING:
    from geotrain.cli._plan_search import Found
    from geotrain.plan import MadeBy
    from geotrain.planner import Answer
    from geotrain.planner.explain import Explanation
    from geotrain.planner.survive import Fallback


@dataclass(frozen=True, kw_only=True)
class Files:
    """What is read, and what is written where."""

    cluster: Path
    job: Path
    out: Path | None
    chart: Path | None
    report: Path | None

    def check(self) -> None:
        """Refuse before the search what could not be written after it."""
        check_writable(self.out, self.chart, self.report, inputs=[self.cluster, self.job])

    def made_by(self) -> MadeBy:
        """The command line as it was given, and its inputs."""
        import shlex
        import sys

        from geotrain.planner.provenance import made_by

        return made_by(shlex.join(["geotrain", *sys.argv[1:]]), [self.cluster, self.job])

    def without(self, name: str) -> Path:
        """Where the plan for the loss of a data center goes."""
        assert self.out is not None
        safe = re.sub(r"[^\w.-]+", "-", name)
        return self.out.with_name(f"{self.out.stem}.without-{safe}{self.out.suffix}")


def write_files(
    files: Files, found: Found, origin: MadeBy, explanation: Explanation | None, *, pareto: bool
) -> list[str]:
    """Write what was asked for; returns a line about each file."""
    from geotrain.files import write_text
    from geotrain.reports.planning import frontier_svg, placement_svg, planning_html
    from geotrain.reports.step import html_report

    answer, fallbacks = found.answer, found.fallbacks or ()
    lines = write_plans(files, answer, origin, fallbacks) if files.out is not None else []
    if files.report is not None:
        planning = ""
        if explanation is not None:
            planning = planning_html(answer, explanation, fallbacks, pareto=pareto, runnable=found.runnable)
        write_text(files.report, html_report(answer.best.result, planning=planning))
        lines.append(f"report: {files.report}  (open it in a browser)")
    if files.chart is not None:
        reasons = {one.dc: one.reason for one in found.worth()}
        write_text(files.chart, frontier_svg(answer) if pareto else placement_svg(answer.best.result, reasons))
        lines.append(f"chart:  {files.chart}")
    return lines


def write_plans(files: Files, answer: Answer, origin: MadeBy, fallbacks: Sequence[Fallback]) -> list[str]:
    """The plan, and beside it the ones to fall back to."""
    from geotrain.files import write_text
    from geotrain.planner.provenance import plan_text
    from geotrain.reports.planning import plan_heading

    assert files.out is not None
    plans = [(files.out, answer, "")]
    plans += [
        (files.without(one.lost), one.answer, f" after the loss of {one.lost}") for one in fallbacks if one.answer
    ]
    lines = []
    for path, found, when in plans:
        heading = f"{plan_heading(found.best)}{when}."
        write_text(path, plan_text(found.best.result.plan, origin, heading=heading))
        lines.append(f"plan:   {path}  (geotrain simulate {path})" if not when else f"plan:   {path} {when}")
    return lines
