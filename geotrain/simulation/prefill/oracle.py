"""The filling that knows the future: no other can finish more requests in time.

A relaxation: all idle slots together are one server, as fast as there are idle slots at the moment. Work can be divided
at will, needs no guard, no memory and no instance, and overruns nothing. Seconds of that server are counted in work:
at time t it has had capacity(t) slot-seconds, so it is a machine of speed 1 on which a request is released at
capacity(arrival) and due at capacity(arrival + SLO). Who arrives first is due first, so a set of requests can all be in
time if and only if they are when served in order of arrival.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from geotrain.timeline import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """What the oracle reaches; requests in order of arrival."""

    in_time: NDArray[np.bool_]
    finish_s: Floats
    """First token; infinite if capacity ends before."""
    used_s: Floats
    """Slot-seconds used up to each of `times_s`, also by those that were too late."""

    @property
    def met(self) -> int:
        """Requests in time: an upper bound for every filling."""
        return int(self.in_time.sum())


def oracle(
    *, arrival_s: Floats, work_s: Floats, shortest_s: Floats, slo_s: float, times_s: Floats, slots_idle: Floats
) -> Oracle:
    """Serve as many as possible in time, and the others with what is left, each group in order of arrival.

    `work_s` is slot-seconds, `shortest_s` the least time to the first token on an idle instance. Between `times_s[i]`
    and `times_s[i + 1]` there are `slots_idle[i]` idle slots, before and after `times_s` none.
    """
    capacity = np.concatenate(([0.0], np.cumsum(slots_idle * np.diff(times_s))))
    release = np.interp(arrival_s, times_s, capacity)
    due = np.interp(arrival_s + slo_s, times_s, capacity)
    able = np.flatnonzero(shortest_s <= slo_s)
    in_time = np.zeros(len(arrival_s), dtype=np.bool_)
    in_time[able[_most_in_time(release[able], due[able], work_s[able])]] = True

    ends = np.empty(len(arrival_s))
    # What is in time is so to the last digit.
    ends[in_time] = np.minimum(_ends(release[in_time], work_s[in_time]), due[in_time])
    at, done = _progress(ends[in_time], work_s[in_time])
    at, done = np.append(at, capacity[-1]), np.append(done, done[-1])
    left_of = _ends(np.interp(release[~in_time], at, at - done), work_s[~in_time])
    ends[~in_time] = _when(left_of, at, np.maximum.accumulate(at - done))

    finish_s = np.maximum(_when(ends, times_s, capacity), arrival_s + shortest_s)
    # Whoever is served first, a server that never rests while there is work has done as much.
    used_s = np.interp(capacity, *_progress(_ends(release, work_s), work_s))
    return Oracle(in_time=in_time, finish_s=finish_s, used_s=used_s)


def _ends(release: Floats, work: Floats) -> Floats:
    """When each is done on a machine of speed 1, one after the other."""
    total = np.cumsum(work)
    return total + np.maximum.accumulate(release - (total - work))


def _progress(ends: Floats, work: Floats) -> tuple[Floats, Floats]:
    """Points between which the machine rests or works, and what it has done up to each."""
    total = np.cumsum(work)
    at = np.stack((ends - work, ends), axis=1).ravel()
    done = np.stack((total - work, total), axis=1).ravel()
    return np.maximum.accumulate(np.append(0.0, at)), np.append(0.0, done)


def _when(values: Floats, at: Floats, reached: Floats) -> Floats:
    """Where on `at` each value is first reached; infinite if never."""
    after = np.searchsorted(reached, values)
    inside = np.clip(after, 1, len(at) - 1)
    low, high = reached[inside - 1], reached[inside]
    rise = np.where(high > low, high - low, 1.0)
    found = at[inside - 1] + (at[inside] - at[inside - 1]) * np.maximum(0.0, values - low) / rise
    return np.where(after < len(at), found, np.inf)


def _choose(release: Floats, due: Floats, work: Floats) -> Ints:
    """The most that can be in time: the exact algorithm of Kise, Ibaraki and Mine (1978).

    Take them in order; when one is late, leave out the one without which the last one ends earliest.
    """
    kept = np.empty(len(work), dtype=np.int64)
    slack = np.empty(len(work))  # how much earlier it could begin, had it the machine
    largest = np.empty(len(work))  # work of any kept one so far
    size = 0
    end = 0.0
    for new in range(len(work)):
        begin = max(end, release[new])
        kept[size] = new
        slack[size] = begin - release[new]
        largest[size] = max(work[new], largest[size - 1]) if size else work[new]
        size += 1
        end = begin + work[new]
        if end <= due[new]:
            continue
        # Without the one at `place`, the last ends earlier by its work, or by the least slack after it.
        leaves, gain = size - 1, work[new]
        room = slack[size - 1]
        place = size - 2
        while place >= 0 and min(largest[place], room) > gain:
            if min(work[kept[place]], room) > gain:
                leaves, gain = place, min(work[kept[place]], room)
            room = min(room, slack[place])
            place -= 1
        shift = work[kept[leaves]]
        size -= 1
        for place in range(leaves, size):
            shift = min(shift, slack[place + 1])
            kept[place] = kept[place + 1]
            slack[place] = slack[place + 1] - shift
            largest[place] = max(work[kept[place]], largest[place - 1]) if place else work[kept[place]]
        end -= gain
    return kept[:size]


_most_in_time = njit(cache=True)(_choose)
