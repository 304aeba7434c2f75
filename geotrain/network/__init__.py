"""Time on the wire: TCP windows, many connections, sharing in space and in time."""

from geotrain.network.maxmin import max_min_rates
from geotrain.network.path import Path, connections_for, pair_rate, path_between, ring_all_reduce_s

__all__ = ["Path", "connections_for", "max_min_rates", "pair_rate", "path_between", "ring_all_reduce_s"]
