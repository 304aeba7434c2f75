"""What a buffer is: which tensor of which microbatch. The transport carries it and looks only at the job."""

import struct
from dataclasses import dataclass
from enum import IntEnum

from geotrain.transport.errors import FrameError
from geotrain.transport.names import NAME_BYTES, check_name, pack_name, unpack_name


class Direction(IntEnum):
    """Which way a tensor goes through the pipeline."""

    FORWARD = 0
    BACKWARD = 1


_WIRE = struct.Struct(f"<{NAME_BYTES}sQIIIB3x")
HEADER_BYTES = _WIRE.size
_LIMITS = {"step": 64, "pipeline": 32, "stage": 32, "microbatch": 32}


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """The address of a tensor: an activation (forward) or a gradient (backward) that leaves `stage`."""

    job: str
    step: int
    pipeline: int
    stage: int
    microbatch: int
    direction: Direction

    def __post_init__(self) -> None:
        check_name(self.job, "job")
        for name, bits in _LIMITS.items():
            if not 0 <= (value := getattr(self, name)) < 1 << bits:
                raise ValueError(f"{name} {value} must be at least 0 and below 2**{bits}")

    def pack(self) -> bytes:
        """Fixed size, little endian."""
        return _WIRE.pack(
            pack_name(self.job), self.step, self.pipeline, self.stage, self.microbatch, int(self.direction)
        )

    @classmethod
    def unpack(cls, wire: bytes) -> "Header":
        """The header that `pack` packed; anything else raises FrameError."""
        job, step, pipeline, stage, microbatch, direction = _WIRE.unpack(wire)
        if direction > 1:
            raise FrameError(f"bad direction {direction}")
        return cls(
            job=unpack_name(job, "job"),
            step=step,
            pipeline=pipeline,
            stage=stage,
            microbatch=microbatch,
            direction=Direction(direction),
        )
