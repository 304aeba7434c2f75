"""The config.json of published models, with their flags and positions as they are and their sizes made small."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

_SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 211,
    "bos_token_id": None,
    "eos_token_id": None,
    "initializer_range": 0.3,
}
_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
}
_SCALING: dict[str, Any] = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
_QWEN: dict[str, Any] = {
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
}
_QWEN2: dict[str, Any] = {
    **_QWEN,
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "max_window_layers": 28,
    "use_mrope": False,
}
_QWEN3: dict[str, Any] = {
    **_QWEN,
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 16,
    "max_position_embeddings": 40960,
    "max_window_layers": 36,
    "model_type": "qwen3",
    "rope_scaling": None,
    "sliding_window": None,
}
_MISTRAL: dict[str, Any] = {
    "architectures": ["MistralForCausalLM"],
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": False,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama 3.1 8B": {**_LLAMA, "rope_scaling": _SCALING, "tie_word_embeddings": False},
    "Llama 3.2 1B": {
        **_LLAMA,
        "rope_scaling": {**_SCALING, "factor": 32.0},
        "head_dim": 8,
        "tie_word_embeddings": True,
    },
    "Llama 3.1, original context of 64": {
        **_LLAMA,
        "rope_scaling": {**_SCALING, "original_max_position_embeddings": 64},
    },
    "Llama with biases": {**_LLAMA, "attention_bias": True},
    "Qwen2.5 7B": {
        **_QWEN2,
        "max_position_embeddings": 131072,
        "sliding_window": 131072,
        "tie_word_embeddings": False,
    },
    "Qwen2.5 0.5B": {**_QWEN2, "max_position_embeddings": 32768, "sliding_window": 32768, "tie_word_embeddings": True},
    "Qwen3 8B": {**_QWEN3, "tie_word_embeddings": False},
    "Qwen3 0.6B": {**_QWEN3, "tie_word_embeddings": True},
    "Mistral 7B v0.1": {**_MISTRAL, "rope_theta": 10000.0, "sliding_window": 4096},
    "Mistral, window of 16": {**_MISTRAL, "rope_theta": 10000.0, "sliding_window": 16},
    "Mistral 7B v0.3": {**_MISTRAL, "rope_theta": 1000000.0, "sliding_window": None, "head_dim": 12},
}


def published(directory: Path, name: str) -> Any:
    """The transformers model of that family, saved with random weights, biases and norms; its config as published."""
    path = directory / "config.json"
    text = json.dumps(_SMALL | FAMILIES[name])
    path.write_text(text)
    torch.manual_seed(5)
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) / 2)
    model.save_pretrained(directory)
    path.with_name("transformers5.json").write_text(path.read_text())
    path.write_text(text)
    return model.eval()


def continuation(model: Any, prompt: list[int], new: int) -> list[int]:
    """What transformers takes to be likeliest."""
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, pad_token_id=0)
    found: list[int] = out[0, len(prompt) :].tolist()
    return found
