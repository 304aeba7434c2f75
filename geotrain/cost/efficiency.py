"""How long work takes on a GPU: the efficiency rule of a job, applied to the GPU's own figures.

A pass takes the sum of its operations over the achieved matrix rate, its bytes over the achieved memory bandwidth and
its exchanges over the achieved link: small products move many bytes per operation, so they are less efficient. The
host launches kernels ahead of the GPU; whichever of the two is slower sets the pace.
"""

import math
from dataclasses import dataclass

from geotrain.cluster import Gpu
from geotrain.cluster.gpu import Precision
from geotrain.cost.work import Passes, Work
from geotrain.workload import Efficiency, Job

_BLEND = 3
"""Of host and GPU the slower sets the pace, in a soft maximum: some kernels wait for one, some for the other."""


def rule_of(job: Job) -> Efficiency | float:
    """The job's own rule or single figure, or else the built-in rule."""
    return Efficiency() if job.efficiency is None else job.efficiency


@dataclass(frozen=True, kw_only=True)
class PassTimes:
    """Seconds of the passes of one microbatch."""

    forward_s: float
    recompute_s: float
    backward_s: float
    """Both gradients."""
    weight_grad_s: float

    def times(self, number: float) -> "PassTimes":
        """That many of them, one after the other."""
        return PassTimes(
            forward_s=self.forward_s * number,
            recompute_s=self.recompute_s * number,
            backward_s=self.backward_s * number,
            weight_grad_s=self.weight_grad_s * number,
        )

    def __add__(self, other: "PassTimes") -> "PassTimes":
        """Both, one after the other."""
        return PassTimes(
            forward_s=self.forward_s + other.forward_s,
            recompute_s=self.recompute_s + other.recompute_s,
            backward_s=self.backward_s + other.backward_s,
            weight_grad_s=self.weight_grad_s + other.weight_grad_s,
        )


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What one GPU achieves."""

    flops: float
    memory: float
    link: float
    """Bytes per second to and from the other GPUs of its slot."""
    exchange_s: float
    launch_s: float

    @classmethod
    def of(cls, gpu: Gpu, precision: Precision, rule: Efficiency | float) -> "Rates":
        """By that rule; a single figure is a share of peak, and nothing else takes time."""
        peak = gpu.peak_flops(precision)
        if not isinstance(rule, Efficiency):
            return cls(flops=peak * rule, memory=math.inf, link=math.inf, exchange_s=0.0, launch_s=0.0)
        return cls(
            flops=peak * gpu.matmul * rule.matmul,
            memory=gpu.memory_bandwidth * rule.memory,
            link=math.inf if gpu.nvlink is None else gpu.nvlink * rule.nvlink,
            exchange_s=rule.exchange_s,
            launch_s=rule.launch_s,
        )

    def seconds(self, work: Work) -> float:
        """Time on the GPU."""
        computing = work.flops / self.flops + work.moved_bytes / self.memory
        return computing + work.exchanged_bytes / self.link + work.exchanges * self.exchange_s

    def pass_times(self, passes: Passes, *, launched: bool) -> PassTimes:
        """Times of one microbatch's passes; `launched`: many kernels, for which the host may be too slow."""
        launch = self.launch_s if launched else 0.0
        inputs, weights = self.seconds(passes.input_grad), self.seconds(passes.weight_grad)
        backward = _slower(inputs + weights, 2 * launch)
        return PassTimes(
            forward_s=_slower(self.seconds(passes.forward), launch),
            recompute_s=_slower(self.seconds(passes.recompute), launch),
            backward_s=backward,
            weight_grad_s=backward * weights / (inputs + weights) if weights else 0.0,
        )


def _slower(gpu_s: float, host_s: float) -> float:
    if host_s == 0:
        return gpu_s
    low, high = sorted((gpu_s, host_s))
    return float(high * (1 + (low / high) ** _BLEND) ** (1 / _BLEND))
