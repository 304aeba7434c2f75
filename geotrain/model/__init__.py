"""The decoder that is trained: its shape, its layers, its weights on disk, text from it. Knows torch, no processes."""

from geotrain.model.cache import Cache, Row
from geotrain.model.config import Config
from geotrain.model.cross_entropy import loss
from geotrain.model.generate import generate
from geotrain.model.linear import Later, deferred_weights
from geotrain.model.llama import Part, stored_name, tensor_parallel_plan

__all__ = [
    "Cache",
    "Config",
    "Later",
    "Part",
    "Row",
    "deferred_weights",
    "generate",
    "loss",
    "stored_name",
    "tensor_parallel_plan",
]
