"""What all processes tell each other about a step, and what is reported of it once all of it is known.

A step whose gradients are clipped is told before its update, for which the norm is needed; when its update was over
comes with the words of the next step, so that nobody waits for it.
"""

import math
from typing import Any, Protocol

from geotrain.errors import RunError
from geotrain.plan import Plan
from geotrain.training.control import Control
from geotrain.training.options import Options
from geotrain.training.report import StepReport

Told = list[dict[str, Any]]


class Watch(Protocol):
    """Who is told of steps."""

    @property
    def last(self) -> dict[str, Any] | None:
        """What there was to say of the last one."""

    def report(self, report: StepReport) -> None:
        """A step is over."""

    def close(self) -> None:
        """The run is."""


class Telling:
    """One process's words; every process calls the same methods in the same order. Times are the first leader's."""

    def __init__(self, plan: Plan, options: Options, control: Control, watch: Watch | None) -> None:
        self._plan, self._options, self._control, self._watch = plan, options, control, watch
        self._over_s = 0.0
        self._open: tuple[int, Told] | None = None

    def over(self, now_s: float) -> None:
        """This process has updated its weights."""
        self._over_s = now_s

    def tell(
        self, step: int, *, loss: float, norm2: float, busy_s: float, begin_s: float, wan_bytes: int, updated: bool
    ) -> float:
        """Tell of a step, updated already or not; the norm of all gradients. RunError for all if training diverged."""
        words = {"loss": loss, "norm2": norm2, "busy_s": busy_s, "begin_s": begin_s, "wan_bytes": wan_bytes}
        told = self._control.gather(words | {"over_s": self._over_s})
        self._report([words["over_s"] for words in told])
        norm = _norm(told)
        self._check(step, sum(words["loss"] for words in told), norm)
        self._open = step, told
        if updated:
            self._report([words["over_s"] for words in told])
        return norm

    def finish(self) -> None:
        """Report the step now, for what comes next belongs to no step."""
        if self._open is not None:
            self._report(self._control.gather(self._over_s))

    def _check(self, step: int, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        # So that all say this, and nobody that another one is gone.
        self._control.flush()
        raise RunError(
            f"step {step}: the loss is {loss:g} and the norm of the gradients {norm:g}: training has diverged; "
            "begin again, or resume from a checkpoint before it, with a lower learning rate or a longer warm-up"
        )

    def _report(self, over_s: list[float]) -> None:
        if self._open is None:
            return
        (step, told), self._open = self._open, None
        if self._watch is None:
            return
        step_time_s = max(over_s) - min(words["begin_s"] for words in told)
        self._watch.report(
            StepReport(
                step=step,
                loss=sum(words["loss"] for words in told),
                norm=_norm(told),
                rate=self._options.recipe.rate_at(step, self._options.steps),
                step_time_s=step_time_s,
                tokens=self._plan.tokens_per_step,
                utilization=sum(words["busy_s"] for words in told) / (len(told) * step_time_s),
                wan_bytes=sum(words["wan_bytes"] for words in told),
            )
        )


def _norm(told: Told) -> float:
    return math.sqrt(sum(words["norm2"] for words in told))
