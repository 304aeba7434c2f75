"""Time on the wire: TCP windows, many connections, sharing in space and in time."""

from geotrain.network.maxmin import max_min_rates
from geotrain.network.nodes import Row, most_on_a_pair, row_of
from geotrain.network.path import Path, Ring, connections_for, pair_rate, path_between, ring_all_reduce_s, ring_of
from geotrain.network.swap import Swap, swap_between

__all__ = [
    "Path",
    "Ring",
    "Row",
    "Swap",
    "connections_for",
    "max_min_rates",
    "most_on_a_pair",
    "pair_rate",
    "path_between",
    "ring_all_reduce_s",
    "ring_of",
    "row_of",
    "swap_between",
]
