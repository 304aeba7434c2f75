"""What the controller decides: bookings, and refusals."""

from dataclasses import dataclass
from itertools import accumulate, pairwise

from geotrain.prefill.fleet import Kind
from geotrain.prefill.request import End, Request


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Booking:
    """Requests that one instance prefills together."""

    number: int
    requests: tuple[Request, ...]
    kind: Kind
    instance: int
    unit_s: tuple[float, ...]
    """Of one layer of each chunk; every slot works each chunk off layer by layer."""
    cached_tokens: int
    """Found on the instance."""
    start_s: float
    end_s: float
    """Predicted, without the hand-over."""
    hop_s: float
    """Between two slots."""
    hand_over_s: float

    @property
    def slots(self) -> list[int]:
        """In the order of the layers."""
        slots: list[int] = self.kind.slots[self.instance].tolist()
        return slots

    @property
    def layers(self) -> list[int]:
        """On each slot."""
        layers: list[int] = self.kind.layers[self.instance].tolist()
        return layers

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First layer of each slot, and the one behind its last."""
        ends = list(accumulate(self.layers, initial=0))
        return list(pairwise(ends))

    @property
    def tokens(self) -> int:
        """Keys and values to hold."""
        return sum(request.input_tokens for request in self.requests)


@dataclass(frozen=True, slots=True)
class Run:
    """Give the slots their tasks."""

    booking: Booking


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell the client; `end` says whether it was turned away or lost."""

    request: Request
    end: End
    reason: str
    retry_after_s: float = 0.0


Command = Run | Refuse
