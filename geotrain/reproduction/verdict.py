"""A claim and what was found, side by side."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from geotrain.reproduction.experiment import Claim
from geotrain.reproduction.finding import Finding

Word = Literal["holds", "more", "less", "not measured"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a claim comes to."""

    claim: Claim
    ours: float | None
    """None where nothing was measured."""
    findings: tuple[Finding, ...]
    """What `ours` was taken from."""

    @property
    def word(self) -> Word:
        """holds, or in which direction ours differs."""
        claim = self.claim
        if self.ours is None:
            return "not measured"
        if claim.within is not None:
            kept = abs(self.ours - claim.value) <= claim.within * abs(claim.value)
        else:
            kept = self.ours >= claim.value if claim.at_least else self.ours <= claim.value
        return "holds" if kept else "more" if self.ours > claim.value else "less"


def judge(claim: Claim, findings: Sequence[Finding]) -> Verdict:
    """The claim against the findings it speaks of."""
    found = claim.ours.pick(findings)
    values = [one.value for one in found]
    ours: float | None = None
    if values:
        match claim.ours.take:
            case "only":
                assert len(values) == 1, f"{claim.says}: {len(values)} findings match {claim.ours}"
                ours = values[0]
            case "share":
                assert claim.ours.limit is not None
                ours = sum(value <= claim.ours.limit for value in values) / len(values)
            case "max":
                ours = max(values)
            case "min":
                ours = min(values)
            case "median":
                ours = statistics.median(values)
    if claim.ours.take in ("max", "min"):
        found = [one for one in found if one.value == ours][:1]
    return Verdict(claim=claim, ours=ours, findings=tuple(found))
