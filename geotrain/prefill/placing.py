"""Finds the instance on which a prompt ends soonest: a walk along the free windows of its slots. Compiled.

Each slot has a frontier: until then it is booked. A prompt is laid behind the frontiers of its instance's slots, in
whole units (one layer of one token chunk), window after window, slot after slot.
"""

from typing import Any

import numpy as np
from numba import njit

NOTHING = -1
_FEW = 8
"""Prompts of more chunks are tried only on the instances that should end soonest."""
_SHORTLIST = 4
"""Slots of those instances, at least one instance."""

_COMPILE: dict[str, Any] = {"cache": True, "error_model": "numpy"}


@njit(**_COMPILE)
def walk(first, start_s, end_s, row, begin_s, step_s, now_s, units, unit_s, until_s):
    """(first piece's start, last piece's end) of that many units on a slot; infinite if not begun by `until_s`."""
    low, high = first[row], first[row + 1]
    began_s = np.inf
    if low == high:
        return np.inf, np.inf
    step = np.floor((now_s - begin_s) / step_s)
    base_s = begin_s + step * step_s
    at, top = low, high
    while at < top:
        middle = (at + top) >> 1
        if base_s + end_s[middle] > now_s:
            top = middle
        else:
            at = middle + 1
    while True:
        if at == high:
            at = low
            base_s += step_s
        open_s = max(now_s, base_s + start_s[at])
        if open_s >= until_s:
            return np.inf, np.inf
        fit = np.floor((base_s + end_s[at] - open_s) / unit_s + 1e-9)
        if fit > 0:
            if began_s == np.inf:
                began_s = open_s
            if fit >= units:
                return began_s, open_s + units * unit_s
            units -= fit
        at += 1


@njit(**_COMPILE)
def lay(first, start_s, end_s, begin_s, step_s, rows, frontier, slots, layers, unit_s, hop_s, now_s, until_s, at_s):
    """(start, end) of a prompt on one instance; `at_s` becomes each slot's new frontier."""
    began_s = np.inf
    for q in range(len(slots)):
        at_s[q] = max(now_s, frontier[slots[q]])
    done_s = now_s
    for chunk in range(len(unit_s)):
        ready_s = now_s
        for q in range(len(slots)):
            piece_s, done_s = walk(
                first, start_s, end_s, rows[slots[q]], begin_s, step_s, max(ready_s, at_s[q]),
                layers[q], unit_s[chunk], until_s,
            )  # fmt: skip
            if done_s == np.inf:
                return np.inf, np.inf
            if began_s == np.inf:
                began_s = piece_s
            at_s[q] = done_s
            ready_s = done_s + hop_s
    return began_s, done_s


@njit(**_COMPILE)
def no_sooner(rows, frontier, now_s, slots, layers, other_slots, other_layers):
    """Whether an instance idles and is cut like another and is free no sooner: then no prompt ends sooner there."""
    for q in range(len(slots)):
        if rows[slots[q]] != rows[other_slots[q]] or layers[q] != other_layers[q]:
            return False
        if max(now_s, frontier[slots[q]]) < frontier[other_slots[q]]:
            return False
    return True


@njit(**_COMPILE)
def place(
    first, start_s, end_s, idle, begin_s, step_s, rows, frontier, instances, layers, room, tokens, unit_s, hop_s,
    now_s, until_s,
):  # fmt: skip
    """(instance, start, end) that ends soonest among the `instances` with room for the tokens; NOTHING if none does.

    `idle` is the share of its time that each row is idle, `room` what slots can hold, in layers of one token.
    """
    best, best_start_s, best_end_s = NOTHING, np.inf, np.inf
    count, width = instances.shape
    at_s = np.empty(width)
    if len(unit_s) * width <= _FEW:
        rest_s, tried = unit_s[1:].sum(), np.full(len(first), NOTHING)
        for i in range(count):
            # No sooner than the first chunk from any of the slots to the last, and then the others there.
            least_s, after, holds = now_s, 0, True
            for q in range(width - 1, -1, -1):
                after += layers[i, q]
                least_s = max(least_s, max(now_s, frontier[instances[i, q]]) + unit_s[0] * after)
                holds = holds and room[instances[i, q]] >= tokens * layers[i, q]
            if not holds or least_s + rest_s * layers[i, width - 1] >= best_end_s:
                continue
            like = tried[rows[instances[i, 0]]]
            if like != NOTHING and no_sooner(
                rows, frontier, now_s, instances[i], layers[i], instances[like], layers[like]
            ):
                continue
            tried[rows[instances[i, 0]]] = i
            began_s, ended_s = lay(
                first, start_s, end_s, begin_s, step_s, rows, frontier, instances[i], layers[i], unit_s, hop_s, now_s,
                min(until_s, best_end_s), at_s,
            )  # fmt: skip
            if ended_s < best_end_s:
                best, best_start_s, best_end_s = i, began_s, ended_s
        return best, best_start_s, best_end_s
    # The instance of every row that should end soonest, and of these the few best.
    total_s, alike = unit_s.sum(), np.full(len(first), NOTHING)
    keys = np.full(len(first), np.inf)
    for i in range(count):
        key, holds = now_s, True
        for q in range(width):
            row = rows[instances[i, q]]
            key = max(key, max(now_s, frontier[instances[i, q]]) + total_s * layers[i, q] / idle[row])
            holds = holds and room[instances[i, q]] >= tokens * layers[i, q]
        row = rows[instances[i, 0]]
        if holds and key < keys[row]:
            keys[row], alike[row] = key, i
    for _ in range(max(1, _SHORTLIST // width)):
        row = np.argmin(keys)
        i = alike[row]
        if keys[row] == np.inf:
            break
        keys[row] = np.inf
        began_s, ended_s = lay(
            first, start_s, end_s, begin_s, step_s, rows, frontier, instances[i], layers[i], unit_s, hop_s, now_s,
            min(until_s, best_end_s), at_s,
        )  # fmt: skip
        if ended_s < best_end_s:
            best, best_start_s, best_end_s = i, began_s, ended_s
    return best, best_start_s, best_end_s
