"""Max-min fair sharing of a link: nobody gets more than it can use, and what is left is shared equally."""

import numpy as np

from geotrain.timeline import Floats, Ints


def max_min_rates(capacity: float, caps: Floats, pairs: Ints) -> Floats:
    """Rate of each pair of each flow, where flow i has pairs[i] pairs that can use caps[i] each."""
    rates = np.empty(len(caps))
    share_out(capacity, caps, pairs, rates)
    return rates


def share_out(capacity: float, caps: Floats, pairs: Ints, rates: Floats) -> None:
    """The same into `rates`. Plain loops: the simulator compiles this very function, and the compiler likes it bare."""
    left = capacity
    open_pairs = 0
    for i in range(len(caps)):
        rates[i] = -1.0  # not settled yet
        open_pairs += pairs[i]
    settled = True
    while settled and open_pairs > 0:
        settled = False
        share = left / open_pairs
        for i in range(len(caps)):
            if rates[i] < 0 and caps[i] <= share:
                rates[i] = caps[i]
                left -= caps[i] * pairs[i]
                open_pairs -= pairs[i]
                settled = True
    for i in range(len(caps)):
        if rates[i] < 0:
            rates[i] = left / open_pairs
