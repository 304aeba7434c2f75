"""Which share of a GPU's peak a transformer layer achieves: large matrices more, small ones less."""

from geotrain.workload import Job

CEILING = 0.55
"""Share of peak that very large layers reach."""
HALF_FLOPS = 1.5e11
"""Forward operations of one layer on one GPU at which half of the ceiling is reached."""


def efficiency(job: Job, tensor_parallel: int) -> float:
    """Achieved share of peak; the job's own figure wins."""
    if job.efficiency is not None:
        return job.efficiency
    per_gpu = 2.0 * job.microbatch * job.sequence * job.model.layer_parameters / tensor_parallel
    return CEILING * per_gpu / (per_gpu + HALF_FLOPS)
