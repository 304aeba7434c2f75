"""How far prefill keeps away from the end of a window: learned from how much sooner windows ended than expected."""

import numpy as np

_MEMORY = 128
"""Ends of windows that a slot remembers."""
_MOST_BACKOFF = 16.0
_RECOVERY = 0.8


class Guard:
    """One for each slot."""

    def __init__(self, num_slots: int, *, least_s: float, quantile: float) -> None:
        self._least_s, self._quantile = least_s, quantile
        self._early_s = np.zeros((num_slots, _MEMORY))
        self._ended = np.zeros(num_slots, dtype=np.int64)
        self._backoff = np.ones(num_slots)
        self.time_s = np.full(num_slots, least_s)

    def settle(self) -> None:
        """Think again: `time_s` changes only here."""
        drift_s = np.quantile(self._early_s, self._quantile, axis=1)
        self.time_s = np.maximum(self._least_s, drift_s) * self._backoff

    def ended(self, slot: int, early_s: float) -> None:
        """A window ended so much sooner than was expected when last asked; later is negative."""
        self._early_s[slot, self._ended[slot] % _MEMORY] = early_s
        self._ended[slot] += 1

    def overran(self, slot: int, happened: bool) -> None:
        """Whether prefill was still there when training came back; a slot where that repeats keeps further away."""
        factor = 2.0 if happened else _RECOVERY
        self._backoff[slot] = min(_MOST_BACKOFF, max(1.0, self._backoff[slot] * factor))
