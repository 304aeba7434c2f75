"""Training as prefill meets it: which step it is in, when it wants a slot back, and what can be seen of that coming."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from operator import lt

import numpy as np

from geotrain.action import Action
from geotrain.prefill.forecast import Forecast
from geotrain.simulation.prefill.outcome import ALL_REDUCE, OPTIMIZER, TrainingSpans
from geotrain.simulation.prefill.steps import Step, Steps

_KEPT_STEPS = 8
"""Steps whose spans are kept for pictures."""
_SAME_S = 1e-12


@dataclass(slots=True, kw_only=True)
class View:
    """A slot between two spans of training, as seen from it now."""

    row: int
    number: int
    """Of the step whose span comes next."""
    position: int
    """Of that span in its step."""
    window: int
    now_s: float
    open_s: float
    """Since when the slot is free."""
    wanted_s: float
    """When training will really want it; nobody on the slot knows."""
    back_s: float
    """When it will be free after that."""
    begin_s: float
    """When the step began, or is expected to."""
    started_s: float | None
    """When the producer of the awaited input began, if that has been heard of."""
    notice_s: float
    """How long such news is under way."""
    seen_coming: bool
    """Whether there will be such news."""


class Training:
    """Steps one after the other on the virtual clock."""

    def __init__(self, steps: Steps, forecast: Forecast) -> None:
        self._steps, self._forecast = steps, forecast
        bubbles = forecast.bubbles
        self._first = bubbles.first.tolist()
        self._rows = np.repeat(np.arange(bubbles.num_slots), np.diff(bubbles.first))
        triggers = [trigger for of_slot in steps.triggers for trigger in of_slot]
        edges = np.concatenate(([0], np.cumsum([len(of_slot) for of_slot in steps.triggers])))
        self._producer = np.array([-1 if t is None else edges[t.slot] + t.position for t in triggers])
        self.number = 0
        self.begin_s = 0.0
        self._before = steps.steady
        self._step = steps.play(0, 0.0)
        self._next = steps.play(1, self._step.length_s)
        self._holds_s: dict[tuple[int, int, int], float] = {}
        self._expected_s: dict[tuple[int, int, int], float] = {}
        """[step, row, position]: the end that somebody on the slot last counted with."""
        self.begins_s = [0.0]
        self.slowdown: list[float] = []
        self.busy_s: list[float] = []
        self.taken_s: list[float] = []
        self._spans: list[tuple[int, int, int, int, float, float]] = []

    @property
    def end_s(self) -> float:
        """Of the step under way, as things stand."""
        return self.begin_s + self._step.length_s

    def view(self, row: int, now_s: float) -> View:
        """The slot of that row now, or when training will be back if it is there."""
        step, begin_s, number = self._step, self.begin_s, self.number
        ends = step.ends_s[row]
        position = bisect_right(ends, now_s - begin_s + _SAME_S)
        if position == len(ends):
            step, begin_s, number, position = self._next, self.end_s, number + 1, 0
            open_s = self.begin_s + ends[-1]
        elif position:
            open_s = begin_s + ends[position - 1]
        else:
            open_s = begin_s + self._before.ends_s[row][-1] - self._before.length_s
        trigger = self._steps.triggers[row][position]
        started_s, notice_s = None, 0.0
        if trigger is not None:
            notice_s = trigger.notice_s
            real_s = begin_s + step.starts_s[trigger.slot][trigger.position]
            started_s = real_s if real_s + notice_s <= now_s else None
        forecast = self._forecast
        return View(
            row=row,
            number=number,
            position=position,
            window=self._first[row] + position,
            now_s=now_s,
            open_s=open_s,
            wanted_s=begin_s + step.starts_s[row][position],
            back_s=begin_s + step.ends_s[row][position],
            begin_s=forecast.begin_s + (number - self.number) * forecast.step_s,
            started_s=started_s,
            notice_s=notice_s,
            seen_coming=trigger is not None,
        )

    def count_on(self, view: View, end_s: float) -> None:
        """Somebody plans until then, with the best news there will be."""
        if view.started_s is not None or not view.seen_coming:
            self._expected_s[view.number, view.row, view.position] = end_s

    def late_s(self, view: View) -> float:
        """How long after it wanted the slot training gets it, as things stand."""
        return self._holds_s.get((view.number, view.row, view.position), 0.0)

    def hold(self, view: View, delay_s: float) -> list[int]:
        """Prefill is still there when training wants the slot back. Gives the rows that training now wants sooner.

        There are such: when one is late for a link that is used in turns, another's turn may come first.
        """
        self._forecast.overran(view.row, True)
        if delay_s <= self.late_s(view):
            return []
        self._holds_s[view.number, view.row, view.position] = delay_s
        step = self._step if view.number == self.number else self._next
        starts_s, end_s = step.starts_s, self.end_s
        step.hold(view.row, view.position, delay_s)
        rows = range(self._steps.num_slots)
        return [row for row in rows if self.end_s < end_s or any(map(lt, step.starts_s[row], starts_s[row]))]

    def roll(self) -> None:
        """The step is over; the next one begins."""
        step = self._step
        if self.number < _KEPT_STEPS:
            self._record(step)
        self.slowdown.append(step.length_s / step.undisturbed_s - 1)
        self.busy_s.append(step.busy_s)
        self.taken_s.append(step.taken_s)
        self._learn(step)
        self.begin_s = self.end_s
        self.begins_s.append(self.begin_s)
        self.number += 1
        self._before, self._step = step, self._next
        self._next = self._steps.play(self.number + 1, self.end_s)
        self._holds_s = {key: delay for key, delay in self._holds_s.items() if key[0] >= self.number}

    def _learn(self, step: Step) -> None:
        starts_s = np.concatenate(step.starts_s)
        before_s = np.array([ends[-1] for ends in self._before.ends_s]) - self._before.length_s
        opens_s = np.concatenate(
            [np.array([first, *ends[:-1]]) for first, ends in zip(before_s, step.ends_s, strict=True)]
        )
        lead_s = np.where(self._producer < 0, math.nan, starts_s - starts_s[self._producer])
        for key in [key for key in self._expected_s if key[0] <= self.number]:
            _, row, position = key
            early_s = self._expected_s.pop(key) - self.begin_s - step.starts_s[row][position]
            self._forecast.ended(row, early_s)
            if key not in self._holds_s:
                self._forecast.overran(row, False)
        self._forecast.learn(opens_s, starts_s, lead_s, step.length_s)

    def _record(self, step: Step) -> None:
        for row, codes in enumerate(self._steps.orders.codes):
            actions = [Action.unpack(code) for code in codes.tolist()]
            stage = row % self._steps.num_stages
            told = [(int(action.kind), action.stage, action.microbatch) for action in actions]
            told += [(ALL_REDUCE, stage, 0), (OPTIMIZER, stage, 0)]
            held_s = [self._holds_s.get((self.number, row, position), 0.0) for position in range(len(told) - 1)]
            starts = [start_s + held for start_s, held in zip(step.starts_s[row], held_s, strict=True)]
            update_s = step.ends_s[row][-1] - step.update_s(row)
            spans = zip(
                told, [*starts, update_s], [*step.ends_s[row][:-1], update_s, step.ends_s[row][-1]], strict=True
            )
            for what, start_s, end_s in spans:
                if end_s > start_s + _SAME_S:
                    self._spans.append((row, *what, self.begin_s + start_s, self.begin_s + end_s))

    @property
    def spans(self) -> TrainingSpans:
        """Of the first steps."""
        rows = sorted(self._spans, key=lambda span: span[4])
        whole = np.array([span[:4] for span in rows], dtype=np.int64).reshape(-1, 4)
        slot, kind, stage, microbatch = whole.T
        return TrainingSpans(
            slot=slot,
            kind=kind,
            stage=stage,
            microbatch=microbatch,
            start_s=np.array([span[4] for span in rows], dtype=np.float64),
            end_s=np.array([span[5] for span in rows], dtype=np.float64),
        )
