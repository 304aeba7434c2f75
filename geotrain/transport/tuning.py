"""How many connections to use: double while that makes the channel faster, look again when things have changed.

Pure: told when bytes were acknowledged and whether more are on their way, it answers with a number. Time counts only
from one acknowledgement to the next while something is on its way, so that a pause of the trainer is not taken for a
slow network, nor a long round trip for a low rate.
"""

from dataclasses import dataclass

_SAMPLE_S = 0.25
"""Busy time that makes a measurement ..."""
_SETTLE_S = 0.5
"""... and that passes before it, while new connections get up to speed."""
_GAIN = 1.05
"""A doubling that brings less is taken back."""
_CHANGE = 1.3
"""A rate that differs by more than this factor from what it was is a changed network ..."""
_CHANGED_SAMPLES = 4
"""... if it does so for that many measurements in a row."""
_RECHECK_SAMPLES = 120
"""One more doubling is tried after that many measurements in any case."""


@dataclass(slots=True)
class Tuner:
    """Acknowledgements in, number of connections out."""

    most: int
    lanes: int = 1
    rate_bytes_per_s: float = 0.0
    """The last measurement."""
    _settled_rate: float = 0.0
    _trying: bool = True
    _before: float = 0.0
    _lanes_before: int = 1
    _odd: int = 0
    _samples: int = 0
    _since_s: float | None = None
    _settling_s: float = _SAMPLE_S
    _busy_s: float = 0.0
    _bytes: int = 0

    def acknowledged(self, now_s: float, size_bytes: int, more_to_come: bool) -> int:
        """`size_bytes` more have arrived at the peer; returns the number of connections to use from now on."""
        if self._since_s is not None:
            self._busy_s += now_s - self._since_s
            self._bytes += size_bytes
        self._since_s = now_s if more_to_come else None
        if self._busy_s < (self._settling_s or _SAMPLE_S):
            return self.lanes
        if self._settling_s:
            self._restart(0.0)
        else:
            rate = self._bytes / self._busy_s
            self._restart(0.0)
            self._measured(rate)
        return self.lanes

    def _restart(self, settling_s: float) -> None:
        self._settling_s, self._busy_s, self._bytes = settling_s, 0.0, 0

    def _measured(self, rate: float) -> None:
        self.rate_bytes_per_s = rate
        if self._trying:
            self._judge(rate)
            return
        self._samples += 1
        factor = rate / self._settled_rate
        self._odd = self._odd + 1 if factor > _CHANGE or factor < 1 / _CHANGE else 0
        if self._odd >= _CHANGED_SAMPLES or self._samples >= _RECHECK_SAMPLES:
            self._before = 0.0
            self._trying = True
            self._judge(rate)

    def _judge(self, rate: float) -> None:
        """Go on doubling, or settle."""
        if self._before and rate < self._before * _GAIN:
            self.lanes = self._lanes_before
            self._settle(self._before)
        elif self.lanes >= self.most:
            self._settle(rate)
        else:
            self._before, self._lanes_before = rate, self.lanes
            self.lanes = min(self.most, self.lanes * 2)
            self._restart(_SETTLE_S)

    def _settle(self, rate: float) -> None:
        self._trying, self._settled_rate, self._odd, self._samples = False, rate, 0, 0
        self._restart(_SETTLE_S)
