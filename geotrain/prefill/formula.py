"""Prefill time by the formulas of `cost`, for what nobody has measured.

A forward pass by the built-in efficiency rule, with three differences to training: attention looks back only, the host
is ahead of the GPU (serving launches recorded graphs), and the head works on one token. On the 72 published times
that is off by 27% (the root of the mean square); by 15% on those of current software.
"""

from dataclasses import replace

from geotrain.cluster import Gpu
from geotrain.cost.efficiency import Rates
from geotrain.cost.flops import stage_flops
from geotrain.cost.memory import element_bytes
from geotrain.cost.work import Share, Work
from geotrain.prefill.fitting import solve, untested
from geotrain.prefill.predictor import PrefillTime
from geotrain.workload import Efficiency, Job, Model

_LENGTHS = (256, 2048, 16384)
"""Any three: the time is a polynomial of the second degree."""


def formula_time(model: Model, gpu: Gpu, tensor_parallel: int) -> PrefillTime:
    """On a slot of so many GPUs, in 16 bit."""
    some = Job(model=model, sequence=1, microbatches=1, precision="bf16" if gpu.computes("bf16") else "fp16")
    rates = Rates.of(gpu, some.precision, Efficiency())

    def seconds(length: int) -> float:
        job = some.model_copy(update={"sequence": length})
        share = Share(job, tensor_parallel, sequence_parallel=False)
        unseen = Work(flops=-0.5 * stage_flops(job, 1, is_last=False).attention / tensor_parallel)
        embedding = share.ends(is_first=True, is_last=False).forward
        return model.layers * rates.seconds(share.layer.forward + unseen) + rates.seconds(embedding)

    time, _ = solve({(length, 0): seconds(length) for length in _LENGTHS})
    kept_bytes = 2 * model.layers * model.kv_heads * model.head_dim * element_bytes(some) / tensor_parallel
    return replace(time, per_cached_s=kept_bytes / rates.memory, spread=untested())
