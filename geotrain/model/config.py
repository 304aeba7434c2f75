"""A model's config.json in Hugging Face style: what the decoder needs of it, and a refusal of what it cannot do."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, Field, model_validator

from geotrain.errors import InputError
from geotrain.files import Document, Number, Whole, read_text, write_text
from geotrain.workload import Model

_ONLY = {
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
}
"""Fields of a config.json that may have one value: what this decoder does, and what a file means that leaves it out."""


class Config(Document):
    """A Llama-family decoder; the fields have their Hugging Face names and others in the file are passed over."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    hidden_size: Whole = Field(ge=1)
    intermediate_size: Whole = Field(ge=1)
    num_hidden_layers: Whole = Field(ge=1)
    num_attention_heads: Whole = Field(ge=1)
    num_key_value_heads: Whole = Field(0, ge=1)
    """Left out, as many as attention heads."""
    head_dim: Whole = Field(0, ge=1)
    """Left out, hidden_size / num_attention_heads."""
    vocab_size: Whole = Field(ge=1)
    max_position_embeddings: Whole = Field(2048, ge=1)
    rms_norm_eps: Number = Field(1e-6, gt=0)
    rope_theta: Number = Field(10_000.0, gt=0)
    tie_word_embeddings: bool = False
    initializer_range: Number = Field(0.02, gt=0)
    bos_token_id: Whole | None = None
    eos_token_id: Whole | list[Whole] | None = None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a config.json."""
        try:
            content = json.loads(read_text(path))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not valid JSON: {error}") from None
        return cls.parse(content, source=path)

    @classmethod
    def of(cls, model: Model, *, sequence: int | None = None) -> Self:
        """The decoder that a job's model means, for sequences of the job's length."""
        if model.activation != "swiglu":
            raise InputError(
                f"model {model.name}: activation is {model.activation!r} and must be 'swiglu': "
                "only the Llama family can be trained"
            )
        content = {
            "hidden_size": model.hidden,
            "intermediate_size": model.ffn,
            "num_hidden_layers": model.layers,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads,
            "head_dim": model.head_dim,
            "vocab_size": model.vocab,
            "max_position_embeddings": sequence or model.sequence or 2048,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": model.tied_embeddings,
        }
        return cls.parse(content, source=Path(f"model {model.name}"))

    def shape(self, name: str) -> Model:
        """What planning and prefill times need to know of it."""
        return Model(
            name=name,
            layers=self.num_hidden_layers,
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            kv_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            ffn=self.intermediate_size,
            activation="swiglu",
            vocab=self.vocab_size,
            tied_embeddings=self.tie_word_embeddings,
            sequence=self.max_position_embeddings,
        )

    def save(self, path: Path) -> None:
        """Write a config.json that `transformers` loads, version 4 (`rope_theta`) or 5 (`rope_parameters`)."""
        rope = {"rope_type": "default", "rope_theta": self.rope_theta}
        content = {"architectures": ["LlamaForCausalLM"], **_ONLY, **self.model_dump(), "rope_parameters": rope}
        write_text(path, json.dumps(content, indent=2) + "\n")

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end a text."""
        ids = self.eos_token_id
        return () if ids is None else (ids,) if isinstance(ids, int) else tuple(ids)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Fill in what a config.json leaves out or sets to null; refuse what this decoder would do otherwise."""
        given = {field: value for field, value in data.items() if value is not None}
        for field, value in _ONLY.items():
            if given.get(field, value) != value:
                raise ValueError(f"{field} is {json.dumps(given[field])} and must be {json.dumps(value)}")
        heads, hidden = given.get("num_attention_heads"), given.get("hidden_size")
        if isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
            given = {"num_key_value_heads": heads, "head_dim": hidden // heads, **given}
        return given | _rope(given)

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        heads = self.num_attention_heads
        if self.hidden_size % heads:
            raise ValueError(
                f"hidden_size is {self.hidden_size} and must be a multiple of num_attention_heads, {heads}"
            )
        if heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads is {heads} and must be a multiple of num_key_value_heads, "
                f"{self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim} and must be even, for positions turn pairs of its numbers")
        return self


def _rope(given: Mapping[str, Any]) -> dict[str, Any]:
    """The base of the rotary positions, wherever the file has it: the only thing about them that may vary."""
    found: dict[str, Any] = {}
    for field in ("rope_scaling", "rope_parameters"):
        rope = given.get(field, {})
        if not isinstance(rope, Mapping):
            raise ValueError(f"{field} is {json.dumps(rope)} and must be a mapping of fields")
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise ValueError(f'{field}.rope_type is {json.dumps(kind)} and must be "default": unscaled positions')
        if rope.get("partial_rotary_factor", 1) != 1:
            raise ValueError(f"{field}.partial_rotary_factor is {rope['partial_rotary_factor']} and must be 1")
        if "rope_theta" in rope:
            found["rope_theta"] = rope["rope_theta"]
    return found
