"""Rotary positions: pairs of a head's numbers are turned by an angle that grows with the token's position."""

import math

import torch
from torch import Tensor

from geotrain.model.config import Config
from geotrain.workload import RopeScaling

Rotary = tuple[Tensor, Tensor]
"""Cosines and sines [token, head_dim]."""


def rotary(config: Config, positions: Tensor, dtype: torch.dtype) -> Rotary:
    """What turns queries and keys of tokens at these positions."""
    angles = torch.outer(positions, frequencies(config, positions.device)).repeat(1, 2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, rotary: Rotary) -> Tensor:
    """Turn queries or keys [batch, head, token, head_dim]."""
    cos, sin = rotary
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def frequencies(config: Config, device: torch.device) -> Tensor:
    """The angle per position of each pair, in radians."""
    powers = torch.arange(0, config.head_dim, 2, device=device, dtype=torch.float32) / config.head_dim
    plain = 1.0 / config.rope_theta**powers
    return plain if config.rope_scaling is None else _scaled(plain, config.rope_scaling)


def _scaled(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """As in Llama 3.1: by the turns that a pair makes in the original context, whole, divided or in between."""
    turns = scaling.original_max_position_embeddings * plain / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return plain * (kept + (1 - kept) / scaling.factor)
