"""What a run is told besides its plan."""

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from geotrain.errors import InputError
from geotrain.training.optimizer import Recipe


@dataclass(frozen=True, kw_only=True)
class Options:
    """The same on all processes of a run, except `dc`, `host` and the files' places."""

    dc: str
    out: Path
    data: Path | None = None
    """A data set of `geotrain data`; emulated compute needs none."""
    steps: int = 100
    """To train in all, those before a resume included."""
    compute: Literal["torch", "emulated"] = "torch"
    control: tuple[str, int] = ("127.0.0.1", 29400)
    """Where rank 0 of the first data center listens for those of the others."""
    host: str = "127.0.0.1"
    """Where this process listens for its neighbours in other data centers."""
    keys: Path | None = None
    """Made by `geotrain keys`, with a directory for each process; None: neither encrypted nor authenticated."""
    start: Path | None = None
    """Weights to begin with, Hugging Face safetensors; None draws them from the seed."""
    seed: int = 0
    recipe: Recipe = field(default_factory=Recipe)
    sharded: bool = False
    """Each copy of a stage keeps a share of the optimizer's state."""
    checkpoint_every: int = 50
    """Steps; 0 only at the end."""
    keep: int = 2
    resume: bool = True
    record: tuple[int, int] | None = None
    """First and last step whose spans are kept; None: the last ten."""
    devices: Path | None = None
    """Emulated devices are files there, which others may hold while a slot is idle; None: nobody does."""
    metrics_port: int | None = None
    tensorboard: bool = False
    deadline_s: float = 300.0
    """The longest that anything is waited for."""
    peer_timeout_s: float = 30.0
    """A peer in another data center that is silent for so long is lost."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps: {self.steps} must be at least 1")
        if self.compute == "torch" and self.data is None:
            raise InputError("training needs a data set: --data DIR, as `geotrain data` makes it")
        if _is_unspecified(self.host):
            raise InputError(f"host: {self.host!r} is no address that others can reach; give this node's own")
        for name in ("deadline_s", "peer_timeout_s"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: {getattr(self, name):g} must be above 0")
        if self.checkpoint_every < 0 or self.keep < 1:
            raise InputError(
                f"checkpoint_every: {self.checkpoint_every}, keep: {self.keep}; must be at least 0 and at least 1"
            )

    @property
    def recorded(self) -> range:
        """Steps whose spans are kept."""
        first, last = self.record or (self.steps - 10, self.steps - 1)
        return range(max(0, first), last + 1)


def _is_unspecified(host: str) -> bool:
    try:
        return ip_address(host.strip("[]") or "::").is_unspecified
    except ValueError:
        return False
