"""The K nodes of a cell at one boundary as one pipe: a buffer goes over the WAN on all of them at once."""

from geotrain.transport.pool.pool import Pool, pooled
from geotrain.transport.pool.settings import Pooling
from geotrain.transport.pool.wiring import Endpoint, dialers, join

__all__ = ["Endpoint", "Pool", "Pooling", "dialers", "join", "pooled"]
