"""Small models with numbers far from zero, so that equal outcomes mean something."""

from typing import Any

import torch
from torch import Tensor

from geotrain.model import Config, Part, loss

torch.set_num_threads(1)


def config(**changes: Any) -> Config:
    fields = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 37,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
    }
    return Config(**(fields | changes))


def filled(config: Config, seed: int = 1, **cut: Any) -> Part:
    part = Part(config, **cut)
    part.initialize(seed)
    return part


def tokens(config: Config, *shape: int, seed: int = 2) -> Tensor:
    return torch.randint(config.vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def microbatch_loss(part: Part, ids: Tensor) -> Tensor:
    return loss(part(ids[:, :-1]), ids[:, 1:]) / ids[:, 1:].numel()


def gradients(part: Part) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in part.named_parameters() if parameter.grad is not None}
