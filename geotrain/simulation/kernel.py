"""The virtual clock: plays actions on slots and transfers on channels, event by event, compiled.

Knows slots, actions, channels, links and ticks; knows no GPU, no model and no second.
Time is a whole number of ticks, so equal times are equal by construction and every tie is decided by rule:
all that happens at an instant is taken in before anybody decides what to do next.

`play` is the loop; the functions above it are its verbs. They work on a few plain arrays, each a table whose columns
are named below, because the compiler is quick with those and slow with many variables.
"""

from typing import Any

import numpy as np
from numba import njit

from geotrain.action import (
    KIND_MASK,
    MICROBATCH_MASK,
    MICROBATCH_SHIFT,
    PIPELINE_FREE,
    PIPELINE_SHIFT,
    STAGE_MASK,
    STAGE_SHIFT,
)
from geotrain.network.maxmin import share_out

F, R, B, I, W = 0, 1, 2, 3, 4  # noqa: E741
FORWARD, BACKWARD = 0, 1
NOTHING = -1
ONCE_SENT, EARLY, AFTER_FORWARD = 0, 1, 2

# What is played: rows of `stages`, one column per stage of the model (a slot may hold several).
SLOT, RECOMPUTES = 0, 1
DURATION = 2  # + kind: ticks
HELD = 7  # + kind: memory units that an action adds, F and R when they start, the others when they end
CHANNEL = 12  # + direction: takes the stage's result on; NOTHING: the result is there at once
OCCUPANCY = 14  # + direction: ticks on the channel, where no link's capacity binds
LATENCY = 16  # + direction: ticks from leaving to arriving
STAGE_ROWS = 18

# Slots: columns of `slots`, one row per pipeline and slot. First what is given, then what changes.
PIPELINE, LIMIT, AHEAD, NEXT, STOP = 0, 1, 2, 3, 4
W_BEFORE_F, W_BEFORE_B, F_BEFORE_B = 5, 6, 7  # ticks by which the one may hold up the other, known to be coming
RUNNING, DONE_F, DONE_R, DONE_B, DONE_W, UNITS, PEAK, AWAKE = 8, 9, 10, 11, 12, 13, 14, 15
FIRST, LAST = 16, 17  # start of its first action, end of its last
RECOMPUTE = 18  # when: ONCE_SENT, EARLY or AFTER_FORWARD
IN_FLIGHT = 19  # most microbatches at a time
SLOT_COLUMNS = 20

# Channels: columns of `channels`, one row per pipeline and channel; a pooled one uses pipeline 0's.
POOLED, LINK, PAIRS, FREE_AT, ON_WIRE, STIRRED, DUE, CALLED = 0, 1, 2, 3, 4, 5, 6, 7
CHANNEL_COLUMNS = 8
CAP, LEFT, RATE = 0, 1, 2  # columns of `flows`, in bytes of one pair, one row per channel
CAPACITY, SHARED_AT, VERSION, CHANGED = 0, 1, 2, 3  # columns of `links`

SLOT_DONE, ARRIVED, CHANNEL_FREE, LINK_DUE = 0, 1, 2, 3  # kinds of events
ACTIVATION_HERE, GRADIENT_HERE, GRADIENT_SENT = 1, 2, 4  # marks of a (pipeline, stage, microbatch)
NOW, EVENTS, ACTIONS, TRANSFERS, WAKING, STIRRING = 0, 1, 2, 3, 4, 5  # entries of `count`

# Leaving out the ways to call a function from elsewhere saves a third of the compile time.
_COMPILE: dict[str, Any] = {"cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_inner = njit(**_COMPILE | {"no_cpython_wrapper": True})
_share_out = _inner(share_out)


@_inner
def _push(heap, count, time, event):
    """Add an event."""
    i = count[EVENTS]
    count[EVENTS] = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        if heap[parent, 0] < time or (heap[parent, 0] == time and heap[parent, 1] <= event):
            break
        heap[i, 0] = heap[parent, 0]
        heap[i, 1] = heap[parent, 1]
        i = parent
    heap[i, 0] = time
    heap[i, 1] = event


@_inner
def _pop(heap, count):
    """Take the first event off."""
    first = heap[0, 1]
    size = count[EVENTS] - 1
    count[EVENTS] = size
    time = heap[size, 0]
    event = heap[size, 1]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            heap[right, 0] < heap[child, 0] or (heap[right, 0] == heap[child, 0] and heap[right, 1] < heap[child, 1])
        ):
            child = right
        if time < heap[child, 0] or (time == heap[child, 0] and event <= heap[child, 1]):
            break
        heap[i, 0] = heap[child, 0]
        heap[i, 1] = heap[child, 1]
        i = child
    heap[i, 0] = time
    heap[i, 1] = event
    return first


@_inner
def _wake(slots, waking, count, q):
    """Slot q has something to decide at this instant."""
    if slots[q, AWAKE] == 0:
        slots[q, AWAKE] = 1
        waking[count[WAKING]] = q
        count[WAKING] += 1


@_inner
def _stir(channels, stirring, count, g):
    """Channel g has something to decide at this instant."""
    if channels[g, STIRRED] == 0:
        channels[g, STIRRED] = 1
        stirring[count[STIRRING]] = g
        count[STIRRING] += 1


@_inner
def _listed(order, slots, marks, q, base, num_microbatches):
    """The slot's next action in its list, if its input is there."""
    at = slots[q, NEXT]
    if at >= slots[q, STOP]:
        return NOTHING
    code = order[at]
    kind = code & KIND_MASK
    stage = code >> STAGE_SHIFT & STAGE_MASK
    mark = marks[base + stage * num_microbatches + (code >> MICROBATCH_SHIFT & MICROBATCH_MASK)]
    if kind == F:
        if stage > 0 and not mark & ACTIVATION_HERE:
            return NOTHING
    elif B <= kind <= I and not mark & GRADIENT_HERE:
        return NOTHING
    return code


@_inner
def _ruled(stages, slots, marks, expected, q, stage, base, num_microbatches, split, now):
    """The first ready of backward, recompute, forward, weight gradient; always the lowest microbatch.

    A split backward is whole where its I would not fit.
    """
    head = stage << STAGE_SHIFT
    base += stage * num_microbatches
    done_b, done_w, units, limit = slots[q, DONE_B], slots[q, DONE_W], slots[q, UNITS], slots[q, LIMIT]
    recomputes = stages[RECOMPUTES, stage]
    m = done_b
    if m < slots[q, DONE_F] and marks[base + m] & GRADIENT_HERE and (slots[q, DONE_R] > m or not recomputes):
        if split and units + stages[HELD + I, stage] <= limit:
            return head | m << MICROBATCH_SHIFT | I
        if split and done_w < m:
            return head | done_w << MICROBATCH_SHIFT | W
        return head | m << MICROBATCH_SHIFT | B
    may_recompute = recomputes and slots[q, DONE_R] == m and m < slots[q, DONE_F]
    if may_recompute and slots[q, RECOMPUTE] != AFTER_FORWARD and marks[base + m] & GRADIENT_SENT:
        if split and done_w < done_b and units + stages[HELD + R, stage] > limit:
            return head | done_w << MICROBATCH_SHIFT | W
        return head | m << MICROBATCH_SHIFT | R
    m = slots[q, DONE_F]
    room = m < num_microbatches and m - done_b < slots[q, AHEAD] and units + stages[HELD + F, stage] <= limit
    coming_b = coming_f = now
    if expected.shape[1] > 0:
        coming_b = expected[BACKWARD, base + min(done_b, num_microbatches - 1)]
        coming_f = expected[FORWARD, base + min(m, num_microbatches - 1)]
    if room and (stage == 0 or marks[base + m] & ACTIVATION_HERE):
        # The last stage goes straight from F to its backward, so what has to make room for that comes before.
        straight = split and stage == stages.shape[1] - 1
        if straight and done_w < done_b and units + stages[HELD + F, stage] + stages[HELD + I, stage] > limit:
            return head | done_w << MICROBATCH_SHIFT | W
        until = now + stages[DURATION + F, stage]
        if coming_b <= now or until - coming_b <= slots[q, F_BEFORE_B]:
            return head | m << MICROBATCH_SHIFT | F
    if may_recompute and slots[q, RECOMPUTE] != ONCE_SENT:
        until = now + stages[DURATION + R, stage]
        wait_f = room and coming_f > now and until - coming_f > slots[q, W_BEFORE_F]
        if not wait_f and units + stages[HELD + R, stage] <= limit:
            return head | done_b << MICROBATCH_SHIFT | R
    if split and done_w < done_b:
        until = now + stages[DURATION + W, stage]
        wait_b = coming_b > now and until - coming_b > slots[q, W_BEFORE_B]
        wait_f = room and coming_f > now and until - coming_f > slots[q, W_BEFORE_F]
        if not (wait_b or wait_f):
            return head | done_w << MICROBATCH_SHIFT | W
    return NOTHING


@_inner
def _start(stages, slots, q, code, now, end):
    """Slot q begins the action that will end then."""
    kind = code & KIND_MASK
    stage = code >> STAGE_SHIFT & STAGE_MASK
    slots[q, RUNNING] = code
    slots[q, NEXT] += 1
    slots[q, LAST] = end
    if slots[q, FIRST] < 0:
        slots[q, FIRST] = now
    if kind == F:
        slots[q, DONE_F] += 1
        slots[q, IN_FLIGHT] = max(slots[q, IN_FLIGHT], slots[q, DONE_F] - slots[q, DONE_B])
        slots[q, UNITS] += stages[HELD + F, stage]
        slots[q, PEAK] = max(slots[q, PEAK], slots[q, UNITS])
    elif kind == R:
        slots[q, DONE_R] += 1
        slots[q, UNITS] += stages[HELD + R, stage]
        slots[q, PEAK] = max(slots[q, PEAK], slots[q, UNITS])
    else:
        slots[q, DONE_B] += kind != W
        slots[q, DONE_W] += kind != I


@_inner
def _expect(stages, channels, expected, code, end, num_microbatches, num_channels):
    """The neighbour should know when the result of an action that ends then can reach it."""
    kind = code & KIND_MASK
    stage = code >> STAGE_SHIFT & STAGE_MASK
    k = code >> PIPELINE_SHIFT
    direction = FORWARD if kind == F else BACKWARD
    there = stage + 1 if kind == F else stage - 1
    if kind == R or kind >= W or there < 0 or there == stages.shape[1]:
        return
    due = end
    c = stages[CHANNEL + direction, stage]
    if c >= 0:
        g = k * num_channels + c
        if channels[g, POOLED]:
            g = c
        due = max(end, channels[g, FREE_AT]) + stages[OCCUPANCY + direction, stage] + stages[LATENCY + direction, stage]
    x = (k * stages.shape[1] + there) * num_microbatches + (code >> MICROBATCH_SHIFT & MICROBATCH_MASK)
    expected[direction, x] = due


@_inner
def _stretched(ticks, factors, row, code, num_model_stages, num_microbatches):
    """Ticks times the factor of this (pipeline, stage, microbatch); as they are where nothing varies."""
    if factors.shape[1] == 0:
        return ticks
    place = (code >> PIPELINE_SHIFT) * num_model_stages + (code >> STAGE_SHIFT & STAGE_MASK)
    x = place * num_microbatches + (code >> MICROBATCH_SHIFT & MICROBATCH_MASK)
    return np.int64(ticks * factors[row, x] + 0.5)


@_inner
def _deliver(stages, slots, marks, waking, count, code, num_microbatches, num_stages):
    """A result has reached the neighbour that needs it."""
    k = code >> PIPELINE_SHIFT
    stage = code >> STAGE_SHIFT & STAGE_MASK
    there = stage + 1 if code & 1 == FORWARD else stage - 1
    x = (k * stages.shape[1] + there) * num_microbatches + (code >> MICROBATCH_SHIFT & MICROBATCH_MASK)
    marks[x] |= ACTIVATION_HERE if code & 1 == FORWARD else GRADIENT_HERE
    _wake(slots, waking, count, k * num_stages + stages[SLOT, there])


@_inner
def _next_in_line(channels, queued, g, c, num_pipelines, num_channels):
    """Whose transfer a channel takes next: of the pipeline that has sent least over it, then the lowest."""
    first = 0 if channels[g, POOLED] else g // num_channels
    last = num_pipelines if channels[g, POOLED] else first + 1
    best = NOTHING
    for k in range(first, last):
        if queued[c, k, 0] < queued[c, k, 1] and (best < 0 or queued[c, k, 0] < queued[c, best, 0]):
            best = k
    return best


@_inner
def _share(channels, flows, links, link, now):
    """The flows on a link share its capacity anew, max-min fair; returns when the next is through, or NOTHING."""
    mine = np.empty(len(channels), np.int64)
    num_flows = 0
    for g in range(len(channels)):
        if channels[g, LINK] == link and channels[g, ON_WIRE] >= 0:
            mine[num_flows] = g
            num_flows += 1
    caps = np.empty(num_flows)
    rates = np.empty(num_flows)
    pairs = np.empty(num_flows, np.int64)
    for i in range(num_flows):
        caps[i] = flows[mine[i], CAP]
        pairs[i] = channels[mine[i], PAIRS]
    elapsed = now - links[link, SHARED_AT]
    links[link, SHARED_AT] = now
    links[link, CHANGED] = 0
    _share_out(links[link, CAPACITY], caps, pairs, rates)
    next_due = np.int64(NOTHING)
    for i in range(num_flows):
        g = mine[i]
        flows[g, LEFT] = max(0.0, flows[g, LEFT] - flows[g, RATE] * elapsed)
        flows[g, RATE] = rates[i]
        due = now + np.int64(np.ceil(flows[g, LEFT] / rates[i]))
        channels[g, DUE] = due
        if next_due < 0 or due < next_due:
            next_due = due
    return next_due


@njit(**_COMPILE)
def play(
    num_pipelines,
    num_microbatches,
    num_actions,  # at most
    num_transfers,
    queue_places,  # most transfers of one pipeline over one channel that is shared or on a link
    stages,  # [STAGE_ROWS, stage]
    slots,  # [pipeline * slots + slot, SLOT_COLUMNS]
    channels,  # [pipeline * channels + channel, CHANNEL_COLUMNS]
    flows,  # [pipeline * channels + channel, 3]
    links,  # [link, 4]
    hop_bytes,  # [direction, stage] bytes per pair, for channels on a link
    order,  # packed actions, all slots' lists one after another (NEXT to STOP); empty: the slots follow rules
    split,  # rules: backward in two parts, I and W
    foresight,  # rules: some action may not hold up another that is known to be coming
    action_factor,  # [kind, (pipeline * stages + stage) * microbatches + microbatch] varies durations; or no columns
    transfer_factor,  # [direction, the same] varies occupancies; or no columns
    holds,  # [place in order] ticks by which a slot is late for that action; or empty
):
    """Play one step: actions [code, start, end], transfers [code | direction, start, end, arrival].

    `slots` tells each one's PEAK, IN_FLIGHT, FIRST and LAST, and by DONE_B < microbatches that all wait for each other.
    """
    num_stages = len(slots) // num_pipelines
    num_channels = len(channels) // num_pipelines
    num_model_stages = stages.shape[1]
    static = len(order) > 0
    actions = np.empty((3, num_actions), np.int64)
    transfers = np.empty((4, num_transfers), np.int64)
    marks = np.zeros(num_pipelines * num_model_stages * num_microbatches, np.uint8)
    expected = np.zeros((2, len(marks) * foresight), np.int64)
    queue = np.empty((num_channels, num_pipelines, queue_places), np.int64)
    queued = np.zeros((num_channels, num_pipelines, 2), np.int64)  # head and tail
    heap = np.empty((len(slots) + num_transfers + 4 * len(channels) * (1 + len(links)) + 8, 2), np.int64)
    waking = np.arange(len(slots))
    stirring = np.empty(len(channels), np.int64)
    count = np.zeros(6, np.int64)
    count[WAKING] = len(slots)
    now = count[NOW]

    while True:
        # Everybody who heard something decides.
        for i in range(count[WAKING]):
            q = waking[i]
            slots[q, AWAKE] = 0
            if slots[q, RUNNING] >= 0:
                continue
            k = slots[q, PIPELINE]
            base = k * num_model_stages * num_microbatches
            if static:
                code = _listed(order, slots, marks, q, base, num_microbatches)
            else:
                code = _ruled(stages, slots, marks, expected, q, q - k * num_stages, base, num_microbatches, split, now)
            if code >= 0:
                code |= k << PIPELINE_SHIFT
                kind = code & KIND_MASK
                lasts = stages[DURATION + kind, code >> STAGE_SHIFT & STAGE_MASK]
                end = now + _stretched(lasts, action_factor, kind, code, num_model_stages, num_microbatches)
                if slots[q, NEXT] < len(holds):
                    end += holds[slots[q, NEXT]]
                _start(stages, slots, q, code & PIPELINE_FREE, now, end)
                if foresight:
                    _expect(stages, channels, expected, code, end, num_microbatches, num_channels)
                _push(heap, count, end, q << 2 | SLOT_DONE)
                a = count[ACTIONS]
                count[ACTIONS] = a + 1
                actions[0, a] = code
                actions[1, a] = now
                actions[2, a] = end
        count[WAKING] = 0
        for i in range(count[STIRRING]):
            g = stirring[i]
            channels[g, STIRRED] = 0
            c = g % num_channels
            link = channels[g, LINK]
            k = _next_in_line(channels, queued, g, c, num_pipelines, num_channels)
            if k < 0 or channels[g, ON_WIRE] >= 0:
                continue
            if channels[g, FREE_AT] <= now:
                code = queue[c, k, queued[c, k, 0]]
                queued[c, k, 0] += 1
                direction = code & 1
                stage = code >> STAGE_SHIFT & STAGE_MASK
                t = count[TRANSFERS]
                count[TRANSFERS] = t + 1
                transfers[0, t] = code
                transfers[1, t] = now
                if link >= 0:
                    channels[g, ON_WIRE] = t
                    flows[g, LEFT] = hop_bytes[direction, stage]
                    if transfer_factor.shape[1] > 0:
                        x = (k * num_model_stages + stage) * num_microbatches + (
                            code >> MICROBATCH_SHIFT & MICROBATCH_MASK
                        )
                        flows[g, LEFT] *= transfer_factor[direction, x]
                    flows[g, RATE] = 0.0
                    links[link, CHANGED] = 1
                    continue
                lasts = stages[OCCUPANCY + direction, stage]
                lasts = _stretched(lasts, transfer_factor, direction, code, num_model_stages, num_microbatches)
                channels[g, FREE_AT] = now + lasts
                arrival = channels[g, FREE_AT] + stages[LATENCY + direction, stage]
                transfers[2, t] = channels[g, FREE_AT]
                transfers[3, t] = arrival
                _push(heap, count, arrival, code << 2 | ARRIVED)
                if foresight:
                    there = stage + 1 if direction == FORWARD else stage - 1
                    x = (k * num_model_stages + there) * num_microbatches + (code >> MICROBATCH_SHIFT & MICROBATCH_MASK)
                    expected[direction, x] = arrival
                if _next_in_line(channels, queued, g, c, num_pipelines, num_channels) < 0:
                    continue
            if channels[g, CALLED] == 0:
                # Somebody waits: come back when the channel is free.
                channels[g, CALLED] = 1
                _push(heap, count, channels[g, FREE_AT], g << 2 | CHANNEL_FREE)
        count[STIRRING] = 0
        for link in range(len(links)):
            if links[link, CHANGED]:
                due = _share(channels, flows, links, link, now)
                if due >= 0:
                    links[link, VERSION] += 1
                    _push(heap, count, due, (np.int64(links[link, VERSION]) * len(links) + link) << 2 | LINK_DUE)

        if count[EVENTS] == 0:
            break
        # All that happens at the next instant.
        now = heap[0, 0]
        while count[EVENTS] > 0 and heap[0, 0] == now:
            event = _pop(heap, count)
            what = event & 3
            index = event >> 2
            if what == SLOT_DONE:
                code = slots[index, RUNNING]
                slots[index, RUNNING] = NOTHING
                _wake(slots, waking, count, index)
                kind = code & KIND_MASK
                stage = code >> STAGE_SHIFT & STAGE_MASK
                k = slots[index, PIPELINE]
                x = (k * num_model_stages + stage) * num_microbatches + (code >> MICROBATCH_SHIFT & MICROBATCH_MASK)
                if kind > R:
                    slots[index, UNITS] += stages[HELD + kind, stage]
                    slots[index, PEAK] = max(slots[index, PEAK], slots[index, UNITS])
                if kind == R or kind >= W or (kind != F and stage == 0):
                    continue
                if kind == F and stage == num_model_stages - 1:
                    marks[x] |= GRADIENT_HERE
                    continue
                direction = FORWARD
                if kind != F:
                    direction = BACKWARD
                    marks[x - num_microbatches] |= GRADIENT_SENT
                    if stages[RECOMPUTES, stage - 1]:
                        _wake(slots, waking, count, k * num_stages + stages[SLOT, stage - 1])
                # The result sets out: at once, on its own channel, or into the queue of a shared one.
                code = k << PIPELINE_SHIFT | code - kind | direction
                c = stages[CHANNEL + direction, stage]
                if c < 0:
                    _deliver(stages, slots, marks, waking, count, code, num_microbatches, num_stages)
                    continue
                g = k * num_channels + c
                if channels[g, POOLED] or channels[g, LINK] >= 0:
                    queue[c, k, queued[c, k, 1]] = code
                    queued[c, k, 1] += 1
                    _stir(channels, stirring, count, c if channels[g, POOLED] else g)
                    continue
                t = count[TRANSFERS]
                count[TRANSFERS] = t + 1
                begin = max(now, channels[g, FREE_AT])
                lasts = stages[OCCUPANCY + direction, stage]
                lasts = _stretched(lasts, transfer_factor, direction, code, num_model_stages, num_microbatches)
                channels[g, FREE_AT] = begin + lasts
                transfers[0, t] = code
                transfers[1, t] = begin
                transfers[2, t] = channels[g, FREE_AT]
                transfers[3, t] = channels[g, FREE_AT] + stages[LATENCY + direction, stage]
                _push(heap, count, transfers[3, t], code << 2 | ARRIVED)
            elif what == ARRIVED:
                _deliver(stages, slots, marks, waking, count, index, num_microbatches, num_stages)
            elif what == CHANNEL_FREE:
                channels[index, CALLED] = 0
                _stir(channels, stirring, count, index)
            elif links[index % len(links), VERSION] == index // len(links):
                # Flows of a link are through, unless its flows changed since this was foreseen.
                link = index % len(links)
                links[link, CHANGED] = 1
                for g in range(len(channels)):
                    t = channels[g, ON_WIRE]
                    if t < 0 or channels[g, LINK] != link or channels[g, DUE] > now:
                        continue
                    channels[g, ON_WIRE] = NOTHING
                    _stir(channels, stirring, count, g)
                    direction = transfers[0, t] & 1
                    arrival = now + stages[LATENCY + direction, transfers[0, t] >> STAGE_SHIFT & STAGE_MASK]
                    transfers[2, t] = now
                    transfers[3, t] = arrival
                    _push(heap, count, arrival, transfers[0, t] << 2 | ARRIVED)
    return actions[:, : count[ACTIONS]], transfers[:, : count[TRANSFERS]]
