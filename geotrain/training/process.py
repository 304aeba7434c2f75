"""A process's place in the world of its data center, as the launcher's environment tells it."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, HashStore, Store, TCPStore

from geotrain.errors import InputError, RunError
from geotrain.training.launch.process import STORE
from geotrain.training.lines import first_line
from geotrain.units import plural

_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_NAMES = (*_NUMBERS, "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Rank and size are of the data center's own world."""

    rank: int
    size: int
    local_rank: int
    alone: bool
    """No launcher: this one process is all of the world."""
    file: Path | None = None
    """Where the processes of the data center meet; None: at an address."""
    address: tuple[str, int] | None = None
    """Where they meet otherwise; None: where torch finds it."""

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> "Place":
        """What the launcher or torchrun has set; nothing set is a world of one."""
        found = {name: environment[name] for name in _NAMES if name in environment}
        if not found:
            return cls(rank=0, size=1, local_rank=0, alone=True)
        try:
            rank, size, local_rank = (int(found[name]) for name in _NUMBERS)
            # torchrun draws a port for every start, so no start finds what an earlier one has left.
            port = int(found["MASTER_PORT"] if STORE not in environment else found.get("MASTER_PORT", "0"))
        except (KeyError, ValueError):
            told = ", ".join(f"{name}={value}" for name, value in found.items())
            needed = f"{', '.join(_NAMES)}, numbers but for the address"
            raise InputError(f"the environment has {told}; needed are {needed}") from None
        if not 0 <= rank < size:
            raise InputError(f"RANK is {rank} and must be below WORLD_SIZE, {size}")
        file = Path(environment[STORE]) / f"workers-{port}" if STORE in environment else None
        address = None
        if file is None and environment.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
            address = _literal(found.get("MASTER_ADDR", ""), port)
        return cls(rank=rank, size=size, local_rank=local_rank, alone=False, file=file, address=address)

    @property
    def is_done(self) -> bool:
        """Whether the run was over when a process of this start of the launch died, so that there is nothing to do."""
        return self.file is not None and self._over(self.file).exists()

    def done(self) -> None:
        """Leave word that all processes are done, for those that are started again."""
        if self.file is not None:
            with suppress(OSError):  # A full disk: they would wait for the others in vain, and then fail.
                self._over(self.file).touch()

    @staticmethod
    def _over(file: Path) -> Path:
        return file.with_name("done")

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
        wait = timedelta(seconds=deadline_s)
        try:
            store = self._store(wait)
            dist.init_process_group(
                backend,
                init_method="env://" if store is None else None,
                store=store,
                rank=self.rank,
                world_size=self.size,
                timeout=wait,
            )
        except (OSError, RuntimeError, ValueError) as error:
            world = plural(self.size, "process")
            raise RunError(f"rank {self.rank} could not join the {world} here: {first_line(error)}") from None

    def _store(self, wait: timedelta) -> Store | None:
        """Where the processes leave word for each other; None: what the environment names."""
        if self.alone:
            return HashStore()
        if self.file is not None:
            store = FileStore(str(self.file), self.size)
            store.set_timeout(wait)
            return store
        if self.address is None:
            return None
        listener = None
        if self.rank == 0:
            # Torch would listen on all addresses of the machine.
            listener = socket.create_server(self.address, family=_family(self.address[0])).detach()
        return TCPStore(*self.address, self.size, self.rank == 0, wait, master_listen_fd=listener)


def _literal(host: str, port: int) -> tuple[str, int] | None:
    """Only numbers say which of a machine's addresses is meant: its name may lead to loopback on the machine itself."""
    try:
        ip_address(host)
    except ValueError:
        return None
    return host, port


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET


def device_name(device: torch.device) -> str:
    """What the maker calls the GPU, or `cpu`."""
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else device.type
