"""What the processes of a service are told; without torch, which only they need."""

from dataclasses import dataclass, field
from pathlib import Path

from geotrain.serving.wire import Party


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What every process is told."""

    serve: str
    """Its address."""
    me: Party
    listen: str
    """Own address."""
    model: Path
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class WorkerSpec(Spec):
    """A worker's."""

    first: int
    last: int
    """Layers from `first` to before `last`."""
    windows: Path
    """Where training says when its slots are idle."""
    guard_s: float
    quantile: float
    emulated: bool = False
    """Units hold an emulated device for as long as they should take."""


@dataclass(frozen=True, kw_only=True)
class DecoderSpec(Spec):
    """The decoder's."""

    limit_bytes: float
    """For keys and values."""
    lease_s: float


@dataclass(frozen=True, kw_only=True)
class BridgeSpec(Spec):
    """That of a decoder with a vLLM server behind it."""

    url: str
    """Of the server's OpenAI interface."""
    called: str
    """The model's name there."""
    key: str = field(repr=False)
    directory: Path
    """Where keys and values are laid down for it, as its connector was told."""
    lease_s: float


def work(spec: WorkerSpec) -> None:
    """Be a prefill worker until serve hangs up."""
    from geotrain.serving.process import be_worker

    be_worker(spec)


def decode(spec: DecoderSpec) -> None:
    """Be the decoder until serve hangs up."""
    from geotrain.serving.process import be_decoder

    be_decoder(spec)


def bridge(spec: BridgeSpec) -> None:
    """Be the decoder, with a vLLM server behind it, until serve hangs up."""
    from geotrain.serving.process import be_bridge

    be_bridge(spec)
