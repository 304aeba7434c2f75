"""What a probe has found: frozen figures, and what follows from them."""

from dataclasses import dataclass

GROWTH = 1.1
"""More connections must bring at least this factor to be worth opening."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The rate over so many connections at once."""

    connections: int
    rate: float
    """Bytes per second that arrived."""
    cores: float
    """CPU that the busier of the two probing processes took; Python's threads share about one core."""
    machine: float
    """Share of all cores in use on the busier of the two machines, by anybody."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One direction of a path."""

    steps: list[Step]

    @property
    def single(self) -> float:
        """Bytes per second of one connection."""
        return self.steps[0].rate

    @property
    def cap(self) -> float:
        """The most that any number of connections got."""
        return max(step.rate for step in self.steps)

    @property
    def enough(self) -> int:
        """The fewest connections that come close to the cap."""
        return next(step.connections for step in self.steps if step.rate * GROWTH >= self.cap)

    @property
    def growing(self) -> bool:
        """Whether the last step still brought more: the cap is then at least this."""
        return len(self.steps) > 1 and self.steps[-1].rate > GROWTH * self.steps[-2].rate

    @property
    def busy(self) -> bool:
        """Whether CPU, and not the path, may have been the limit."""
        best = max(self.steps, key=lambda step: step.rate)
        return best.cores > 0.85 or best.machine > 0.9


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A path, both ways."""

    host: str
    port: int
    secure: bool
    """Over TLS, as a trainer would with keys."""
    rtts_s: list[float]
    there: Way
    """From this side to the server."""
    back: Way

    @property
    def rtt_s(self) -> float:
        """The middle round trip."""
        return sorted(self.rtts_s)[len(self.rtts_s) // 2]

    def window_bytes(self, way: Way) -> float:
        """What one connection keeps in flight: its rate times the round trip."""
        return way.single * self.rtt_s
