"""Max-min fair sharing of a link: nobody gets more than it can use, and what is left is shared equally."""

import numpy as np
from numpy.typing import NDArray


def max_min_rates(capacity: float, caps: NDArray[np.float64], pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rate of each pair of each flow, where flow i has pairs[i] pairs that can use caps[i] each.

    Plain loops over arrays: the simulator compiles this very function.
    """
    rates = np.zeros(len(caps))
    settled = np.zeros(len(caps), dtype=np.bool_)
    left = capacity
    open_pairs = pairs.sum()
    changed = True
    while changed and open_pairs > 0:
        changed = False
        share = left / open_pairs
        for i in range(len(caps)):
            if not settled[i] and caps[i] <= share:
                rates[i] = caps[i]
                settled[i] = True
                left -= caps[i] * pairs[i]
                open_pairs -= pairs[i]
                changed = True
    for i in range(len(caps)):
        if not settled[i]:
            rates[i] = left / open_pairs
    return rates
