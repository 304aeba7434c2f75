"""A few steps of training with prefill in their bubbles: the excerpt that Perfetto trace and HTML report draw."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geotrain.reports.html.timeline import PREFILL, Gantt, Spans, packed
from geotrain.reports.step.tracks import SlotTrack, split_rows
from geotrain.simulation.prefill.outcome import Study
from geotrain.timeline import Floats, Ints
from geotrain.units import plural

_MOST_TOKENS = 2**16 - 1
"""That fit into the timeline's columns."""


@dataclass(frozen=True, kw_only=True)
class FilledTrack(SlotTrack):
    """What one slot did: `rows` are those of the study's training."""

    slot: int
    prefill: Ints
    """Its rows in our spans, by start."""


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """Some steps of some pipelines."""

    study: Study
    steps: range
    num_pipelines: int
    """Drawn, from 0 on."""

    @cached_property
    def edges_s(self) -> Floats:
        """Starts of the steps drawn, and the end of the last one."""
        return _edges_s(self.study)[self.steps.start : self.steps.stop + 1]

    @property
    def said(self) -> str:
        """What is drawn and what is left out."""
        study, last = self.study, self.steps.stop - 1
        numbers = f"steps {self.steps.start} to {last}" if last > self.steps.start else f"step {last}"
        sentence = f"{numbers} of {len(study.steps_s)}"
        every = study.ours.num_slots // len(study.result.plan.stages)
        if self.num_pipelines < every:
            sentence += f", {plural(self.num_pipelines, 'pipeline')} of {every}"
        return sentence

    @cached_property
    def tracks(self) -> list[FilledTrack]:
        """Data center by data center, pipeline by pipeline, stage by stage."""
        plan, stages = self.study.result.plan, len(self.study.result.plan.stages)
        training, prefill = self._rows()
        replicas = [dc.name for dc, pipelines in plan.groups for _ in range(pipelines)] if plan.replicas else []
        tracks = [
            FilledTrack(
                slot=slot,
                datacenter=replicas[slot // stages] if replicas else plan.stages[slot % stages].dc,
                pipeline=slot // stages,
                stage=slot % stages,
                rows=training[slot],
                prefill=prefill[slot],
            )
            for slot in range(self.num_pipelines * stages)
        ]
        return sorted(tracks, key=lambda track: self.datacenters.index(track.datacenter))

    @cached_property
    def datacenters(self) -> list[str]:
        """In the order of the tracks."""
        plan = self.study.result.plan
        return list(dict.fromkeys([*(stage.dc for stage in plan.stages), *(replica.dc for replica in plan.replicas)]))

    def _rows(self) -> Iterator[list[Ints]]:
        """Per slot: rows of the training, then of the prefill, that are seen."""
        num_slots = self.num_pipelines * len(self.study.result.plan.stages)
        from_s, to_s = self.edges_s[0], self.edges_s[-1]
        for columns in (self.study.training, self.study.ours.spans):
            seen = np.flatnonzero((columns.end_s > from_s) & (columns.start_s < to_s) & (columns.slot < num_slots))
            yield [seen[rows] for rows in split_rows(columns.slot[seen], num_slots)]


def _edges_s(study: Study) -> Floats:
    return np.append(study.steps_s, max([study.ours.duration_s, *study.training.end_s[-1:].tolist()]))


def excerpt(study: Study, *, most_spans: int, most_steps: int) -> Excerpt:
    """The last of the steps whose training is known: by then requests are there; whole pipelines, one at least."""
    edges_s, training, prefill = _edges_s(study), study.training, study.ours.spans
    stages = len(study.result.plan.stages)
    # Equal cells are trained once.
    trained = (int(training.slot.max()) + 1 if len(training) else study.ours.num_slots) // stages
    known = max(1, int(np.searchsorted(study.steps_s, training.start_s.max(initial=0.0), side="right")))
    starts_s = [training.start_s, prefill.start_s[prefill.slot < trained * stages]]
    together = np.cumsum(sum(np.diff(np.searchsorted(start_s, edges_s))[:known][::-1] for start_s in starts_s))
    chosen = min(known, most_steps, max(1, int(np.searchsorted(together, most_spans, side="right"))))
    shown = max(1, min(trained, trained * most_spans // max(1, int(together[chosen - 1]))))
    return Excerpt(study=study, steps=range(known - chosen, known), num_pipelines=shown)


def filled_gantt(part: Excerpt) -> Gantt:
    """For report.js: all slots of the excerpt, times from its start."""
    from_s = float(part.edges_s[0])
    spans = [_track_spans(part, track) for track in part.tracks]
    about = {
        "stages": len(part.study.result.plan.stages),
        "copies": 1,
        "marks": (part.edges_s[1:-1] - from_s).tolist(),
        "groups": part.datacenters,
        "tracks": [
            {
                "name": track.name,
                "short": track.short,
                "count": len(of_track.kind),
                "group": part.datacenters.index(track.datacenter),
                "pipeline": track.pipeline,
                "stage": track.stage,
            }
            for track, of_track in zip(part.tracks, spans, strict=True)
        ],
    }
    return packed(spans, float(part.edges_s[-1]) - from_s, about)


def _track_spans(part: Excerpt, track: FilledTrack) -> Spans:
    training, prefill = part.study.training, part.study.ours.spans
    from_s, stages = part.edges_s[0], len(part.study.result.plan.stages)
    start_s = np.concatenate([training.start_s[track.rows], prefill.start_s[track.prefill]]) - from_s
    order = np.argsort(start_s, kind="stable")

    def column(of_training: Ints, of_prefill: Ints) -> Ints:
        return np.concatenate([of_training[track.rows], of_prefill[track.prefill]])[order]

    return Spans(
        start_s=start_s[order],
        end_s=(np.concatenate([training.end_s[track.rows], prefill.end_s[track.prefill]]) - from_s)[order],
        kind=column(training.kind, np.full(len(prefill), PREFILL)),
        microbatch=column(training.microbatch, prefill.request),
        other=column(training.stage // stages, np.minimum(prefill.tokens, _MOST_TOKENS)),
    )
