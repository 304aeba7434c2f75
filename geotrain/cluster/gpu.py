"""One GPU type: what it can compute, hold and move."""

from typing import Literal

from pydantic import Field

from geotrain.errors import InputError
from geotrain.files import Document, Number
from geotrain.units import PositiveBytes, PositiveFlops, PositiveRate

Precision = Literal["bf16", "fp16", "fp32"]


class Gpu(Document):
    """A GPU type by its data sheet: dense peaks, without sparsity."""

    name: str
    bf16: PositiveFlops | None = None
    """Peak dense bf16; left out where the hardware has none."""
    fp16: PositiveFlops
    """Peak dense fp16."""
    fp32: PositiveFlops
    """Peak fp32 outside tensor cores."""
    memory_bytes: PositiveBytes = Field(alias="memory")
    """Memory of one GPU."""
    memory_bandwidth: PositiveRate
    """Rate between the GPU and its memory."""
    matmul: Number = Field(0.85, gt=0, le=1)
    """Share of peak that the best matrix products reach when measured."""
    nvlink: PositiveRate | None = None
    """Rate to the other GPUs of its node, one direction; left out, exchanges among them take no time."""
    nic: PositiveRate | None = None
    """Its share of the node's network cards; `geotrain validate` takes it as the fabric."""

    def computes(self, precision: Precision) -> bool:
        """Whether it has a unit for this precision."""
        return getattr(self, precision) is not None

    def peak_flops(self, precision: Precision) -> float:
        """Peak FLOP/s at this precision; InputError where the GPU has no such unit."""
        peaks = {"bf16": self.bf16, "fp16": self.fp16, "fp32": self.fp32}
        peak = peaks[precision]
        if peak is None:
            usable = ", ".join(name for name, value in peaks.items() if value is not None)
            raise InputError(f"precision {precision!r} is not supported by the GPU {self.name!r}, which has {usable}")
        return peak
