"""A process's place in the world of its data center, as the launcher's environment tells it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from geotrain.errors import InputError, RunError
from geotrain.training.lines import first_line
from geotrain.units import plural

_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Rank and size are of the data center's own world."""

    rank: int
    size: int
    local_rank: int
    alone: bool
    """No launcher: this one process is all of the world."""

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> "Place":
        """What torchrun has set; nothing set is a world of one."""
        found = {name: environment[name] for name in _NAMES if name in environment}
        if not found:
            return cls(rank=0, size=1, local_rank=0, alone=True)
        try:
            rank, size, local_rank, _ = (int(found[name]) for name in (*_NAMES[:3], "MASTER_PORT"))
        except (KeyError, ValueError):
            told = ", ".join(f"{name}={value}" for name, value in found.items())
            needed = f"{', '.join(_NAMES)}, numbers but for the address"
            raise InputError(f"the environment has {told}; needed are {needed}") from None
        if not 0 <= rank < size:
            raise InputError(f"RANK is {rank} and must be below WORLD_SIZE, {size}")
        return cls(rank=rank, size=size, local_rank=local_rank, alone=False)

    def device(self) -> torch.device:
        """The process's GPU, or the CPU where there is none."""
        if not torch.cuda.is_available():
            torch.set_num_threads(1)
            return torch.device("cpu")
        device = torch.device("cuda", self.local_rank)
        torch.cuda.set_device(device)
        return device

    def join(self, *, deadline_s: float) -> None:
        """Enter the world of the data center."""
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        store = torch._C._distributed_c10d.HashStore() if self.alone else None
        try:
            dist.init_process_group(
                backend,
                init_method="env://" if store is None else None,
                store=store,
                rank=self.rank,
                world_size=self.size,
                timeout=timedelta(seconds=deadline_s),
            )
        except (RuntimeError, ValueError) as error:
            world = plural(self.size, "process")
            raise RunError(f"rank {self.rank} could not join the {world} here: {first_line(error)}") from None


def device_name(device: torch.device) -> str:
    """What the maker calls the GPU, or `cpu`."""
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else device.type
