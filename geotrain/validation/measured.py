"""A training step that somebody measured: what ran on what, and how long it took."""

from dataclasses import dataclass
from typing import Literal

from geotrain.cluster import Gpu
from geotrain.cluster.gpu import Precision
from geotrain.workload import Model

RanRecompute = Literal["full", "selective", "none"]
Attention = Literal["fused", "unfused"]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One row of a table of measurements."""

    name: str
    source: str
    """Where the figure comes from."""
    model: Model
    sequence: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    microbatch: int
    global_batch: int
    gpu: Gpu
    precision: Precision
    recompute: RanRecompute
    """full: every layer is redone inside its backward; selective: attention scores only."""
    interleave: int
    gpus_per_node: int
    attention: Attention
    sequence_parallel: bool
    seconds: float

    @property
    def num_gpus(self) -> int:
        """GPUs in use."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def num_microbatches(self) -> int:
        """Per pipeline."""
        return self.global_batch // (self.microbatch * self.data_parallel)
