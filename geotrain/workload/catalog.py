"""Models by name, from their published configurations.

GPT-A and GPT-B are known by sequence and hidden size only; their layer count here is a choice of ours
(one layer per stage of a four-stage pipeline), meant to be overridden: `model: {name: gpt-a, layers: 48}`.
"""

from typing import Any

from geotrain.hints import hint
from geotrain.workload.model import Model, RopeScaling


def _gpt(name: str, layers: int, hidden: int, heads: int, *, vocab: int = 51200, sequence: int = 2048) -> Model:
    """The GPT family ties its head to the embedding and uses GELU with four times the hidden size."""
    return Model(
        name=name, layers=layers, hidden=hidden, heads=heads, vocab=vocab, sequence=sequence, tied_embeddings=True
    )


def _llama(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    vocab: int,
    sequence: int,
    **further: Any,
) -> Model:
    """The Llama and Qwen families: SwiGLU, grouped key and value heads."""
    return Model(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        vocab=vocab,
        sequence=sequence,
        activation="swiglu",
        **further,
    )


def _llama_3(*shape: Any, factor: float, **further: Any) -> Model:
    """Llama 3.1 and 3.2 differ in how far they stretch positions."""
    scaling = RopeScaling(
        rope_type="llama3",
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )
    return _llama(*shape, rope_theta=500_000.0, rope_scaling=scaling, **further)


def _qwen2(*shape: Any, **further: Any) -> Model:
    return _llama(*shape, family="qwen2", rope_theta=1_000_000.0, norm_eps=1e-6, **further)


_MODELS = [
    _gpt("gpt-a", 4, 4096, 32, vocab=50257, sequence=4096),
    _gpt("gpt-b", 4, 8192, 64, vocab=50257, sequence=6144),
    _gpt("gpt-3-175b", 96, 12288, 96, vocab=50257),
    _gpt("megatron-1.7b", 24, 2304, 24),
    _gpt("megatron-3.6b", 30, 3072, 32),
    _gpt("megatron-7.5b", 36, 4096, 32),
    _gpt("megatron-18b", 40, 6144, 48),
    _gpt("megatron-39b", 48, 8192, 64),
    _gpt("megatron-76b", 60, 10240, 80),
    _gpt("megatron-146b", 80, 12288, 96),
    _gpt("megatron-310b", 96, 16384, 128),
    _gpt("megatron-530b", 105, 20480, 128),
    _gpt("megatron-1t", 128, 25600, 160),
    _llama("llama-2-7b", 32, 4096, 32, 32, 11008, 32000, 4096),
    _llama("llama-2-13b", 40, 5120, 40, 40, 13824, 32000, 4096),
    _llama("llama-2-70b", 80, 8192, 64, 8, 28672, 32000, 4096),
    _llama_3("llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256, 8192, factor=8.0),
    _llama_3("llama-3.1-70b", 80, 8192, 64, 8, 28672, 128256, 8192, factor=8.0),
    _llama_3("llama-3.1-405b", 126, 16384, 128, 8, 53248, 128256, 8192, factor=8.0),
    _llama_3("llama-3.2-1b", 16, 2048, 32, 8, 8192, 128256, 8192, factor=32.0, tied_embeddings=True),
    _llama_3("llama-3.2-3b", 28, 3072, 24, 8, 8192, 128256, 8192, factor=32.0, tied_embeddings=True),
    _qwen2("qwen2.5-0.5b", 24, 896, 14, 2, 4864, 151936, 32768, tied_embeddings=True),
    _qwen2("qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064, 32768),
    _qwen2("qwen2.5-72b", 80, 8192, 64, 8, 29568, 152064, 32768),
]

MODELS: dict[str, Model] = {model.name: model for model in _MODELS}


def find_model(name: str) -> Model:
    """The catalog's model of that name; ValueError with the nearest name otherwise."""
    model = MODELS.get(name.lower())
    if model is None:
        raise ValueError(f"is not in the model catalog: {hint(name, MODELS, otherwise='see `geotrain catalog`')}")
    return model
