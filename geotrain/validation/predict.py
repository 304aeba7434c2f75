"""How long a measured run should take: by the simulator, by a closed form for fitting, and by the trivial model."""

import math
from collections import Counter
from copy import copy
from dataclasses import dataclass

from geotrain.cost.efficiency import Rates
from geotrain.cost.flops import stage_flops
from geotrain.cost.memory import boundary_bytes, element_bytes, stage_parameters
from geotrain.cost.stage import pass_times, swapped_bytes, update_s
from geotrain.cost.work import Passes, Share
from geotrain.simulation import simulate
from geotrain.validation.build import chunks_and_layers, job_of, lifted_gpu, plan_of, ring_and_hop_rates
from geotrain.validation.measured import Measured
from geotrain.workload import Efficiency


def predicted_s(row: Measured, efficiency: Efficiency | float) -> float:
    """The step of the row's plan, as `geotrain simulate` plays it."""
    return simulate(plan_of(row, efficiency)).step_time_s


class ClosedForm:
    """Near the simulator's step, hundreds of times as fast; `anchored` makes the two meet at one rule.

    All microbatches through the slowest stage, the first one through the others (in chunks: so much faster), then
    all-reduce, the swap of a tied embedding's gradients, and optimizer.
    """

    def __init__(self, row: Measured) -> None:
        self._row, self._factor = row, 1.0
        self._job, self._gpu = job_of(row, Efficiency()), lifted_gpu(row)
        self._chunks, layers = chunks_and_layers(row)
        self._num_hops = 2 * (len(layers) - 1)
        self._share = Share(self._job, row.tensor_parallel, row.sequence_parallel)
        last = len(layers) - 1
        tied = swapped_bytes(self._job, math.inf) if last else 0.0
        self._swapped_bytes = tied * (2 if row.data_parallel > 1 else 1)
        """Of a tied embedding: to the other end, and on to the copies there."""
        kinds = Counter((number, stage == 0, stage == last) for stage, number in enumerate(layers))
        self._stages = [self._alike(*kind, number) for kind, number in kinds.items()]

    def _alike(self, layers: int, is_first: bool, is_last: bool, number: int) -> "_Alike":
        parameters = stage_parameters(self._job, layers, is_first=is_first, is_last=is_last)
        return _Alike(
            number=number,
            layers=layers,
            ends=self._share.ends(is_first=is_first, is_last=is_last),
            parameters=parameters,
            reduced_bytes=2 * (1 - 1 / self._row.data_parallel) * parameters * element_bytes(self._job),
        )

    def anchored(self, efficiency: Efficiency, simulated_s: float) -> "ClosedForm":
        """The same, scaled to what the simulator says with that rule."""
        other = copy(self)
        other._factor *= simulated_s / self.seconds(efficiency)
        return other

    def seconds(self, efficiency: Efficiency) -> float:
        """The step by that rule."""
        rates = Rates.of(self._gpu, self._row.precision, efficiency)
        ring, hop = ring_and_hop_rates(self._row, efficiency.nvlink)
        slowest_s = all_s = finish_s = 0.0
        for stage in self._stages:
            times = pass_times(rates, self._share.layer, stage.layers, stage.ends, self._job.recompute)
            each_s = times.forward_s + times.backward_s
            update = update_s(self._share, rates, self._gpu, stage.parameters)
            slowest_s, all_s = max(slowest_s, each_s), all_s + stage.number * each_s
            finish_s = max(finish_s, stage.reduced_bytes / ring + update)
        filling_s = (all_s - slowest_s) / self._chunks + self._num_hops * boundary_bytes(self._job) / hop
        finish_s += self._swapped_bytes / ring
        return self._factor * (self._row.num_microbatches * slowest_s + filling_s + finish_s)


@dataclass(frozen=True, kw_only=True)
class _Alike:
    """Stages with the same work."""

    number: int
    layers: int
    ends: Passes
    parameters: float
    reduced_bytes: float
    """Sent by a slot in the data-parallel ring."""


def trivial_s(row: Measured) -> float:
    """FLOPs x (1 + (P - 1) / M) at peak: the model that a cost model has to beat, before its one efficiency."""
    flops = stage_flops(job_of(row, Efficiency()), row.model.layers, is_last=True)
    redone = {"full": flops.recompute, "selective": flops.attention, "none": 0.0}[row.recompute]
    work = (flops.forward + flops.input_gradient + flops.weight_gradient + redone) * row.num_microbatches
    fill = 1 + (row.pipeline_parallel - 1) / row.num_microbatches
    slot_peak = row.gpu.peak_flops(row.precision) * row.tensor_parallel
    return work / row.pipeline_parallel * fill / slot_peak
