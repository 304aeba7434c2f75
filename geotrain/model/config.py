"""A model's config.json in Hugging Face style: what the decoder needs of it, and a refusal of what it cannot do."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from geotrain.complaints import complaint
from geotrain.errors import InputError
from geotrain.files import Document, Number, Whole, read_text, write_text
from geotrain.workload import Model, RopeScaling

_ONLY = {"hidden_act": "silu", "mlp_bias": False, "attention_dropout": 0.0}
"""Fields of a config.json that may have one value: what this decoder does, and what a file means that leaves it out."""


@dataclass(frozen=True, kw_only=True)
class _Family:
    """What sets a model_type apart from the others."""

    architecture: str
    left_out: Mapping[str, Any]
    """What a file means that leaves these fields out, where it is not `Config`'s default."""
    without: frozenset[str]
    """Fields of `Config` that its files do not have."""


_FAMILIES = {
    "llama": _Family(architecture="LlamaForCausalLM", left_out={}, without=frozenset({"sliding_window"})),
    "qwen2": _Family(
        architecture="Qwen2ForCausalLM",
        left_out={"num_key_value_heads": 32, "max_position_embeddings": 32_768},
        without=frozenset({"sliding_window", "attention_bias"}),
    ),
    "qwen3": _Family(
        architecture="Qwen3ForCausalLM",
        left_out={"num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 32_768},
        without=frozenset({"sliding_window"}),
    ),
    "mistral": _Family(
        architecture="MistralForCausalLM",
        left_out={"num_key_value_heads": 8, "max_position_embeddings": 131_072, "sliding_window": 4096},
        without=frozenset({"attention_bias"}),
    ),
}


class Config(Document):
    """A decoder of Llama's kind; the fields have their Hugging Face names and others in the file are passed over."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    model_type: Literal["llama", "qwen2", "qwen3", "mistral"] = "llama"
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
    rope_scaling: RopeScaling | None = None
    attention_bias: bool = False
    """Biases of query, key, value and output; qwen2 has those of the first three without it."""
    sliding_window: Whole | None = Field(None, ge=1)
    """A token sees so many, itself among them; None, all before it."""
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
            "model_type": model.family,
            "hidden_size": model.hidden,
            "intermediate_size": model.ffn,
            "num_hidden_layers": model.layers,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads,
            "head_dim": model.head_dim,
            "vocab_size": model.vocab,
            "max_position_embeddings": sequence or model.sequence or 2048,
            "rms_norm_eps": model.norm_eps,
            "rope_theta": model.rope_theta,
            "rope_scaling": model.rope_scaling,
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
        family = _FAMILIES[self.model_type]
        content = {"architectures": [family.architecture], **_ONLY, **self.model_dump(exclude=set(family.without))}
        scaling = content["rope_scaling"] or {"rope_type": "default"}
        content["rope_parameters"] = {**scaling, "rope_theta": self.rope_theta}
        write_text(path, json.dumps(content, indent=2) + "\n")

    @property
    def has_input_bias(self) -> bool:
        """Whether query, key and value have biases."""
        return self.attention_bias or self.model_type == "qwen2"

    @property
    def normalizes_heads(self) -> bool:
        """Whether each head of queries and keys has a norm."""
        return self.model_type == "qwen3"

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end a text."""
        ids = self.eos_token_id
        return () if ids is None else (ids,) if isinstance(ids, int) else tuple(ids)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Fill in what a config.json leaves out or sets to null; refuse what this decoder would do otherwise."""
        kind = data.get("model_type") or "llama"
        if kind not in _FAMILIES:
            raise ValueError(f"model_type is {json.dumps(kind)} and must be {' or '.join(map(json.dumps, _FAMILIES))}")
        family = _FAMILIES[kind]
        given = {field: value for field, value in {**family.left_out, **data}.items() if value is not None}
        only = _ONLY | {"use_sliding_window": False, "partial_rotary_factor": 1.0}
        if "attention_bias" in family.without:
            only["attention_bias"] = False
        for field, value in only.items():
            if given.get(field, value) != value:
                raise ValueError(f"{field} is {json.dumps(given[field])} and must be {json.dumps(value)}")
        kinds = given.get("layer_types", [])
        if other := [kind for kind in kinds if kind != "full_attention"] if isinstance(kinds, list) else [kinds]:
            raise ValueError(f'layer_types has {json.dumps(other[0])} and must have "full_attention" only')
        given = {field: value for field, value in given.items() if field not in family.without}
        heads, hidden = given.get("num_attention_heads"), given.get("hidden_size")
        if isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
            if hidden % heads and "head_dim" not in given:
                raise ValueError(
                    f"hidden_size is {hidden} and must be a multiple of num_attention_heads, {heads}, "
                    "where head_dim is not given"
                )
            given = {"num_key_value_heads": heads, "head_dim": hidden // heads, **given}
        return given | _rope(given)

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        heads = self.num_attention_heads
        if heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads is {heads} and must be a multiple of num_key_value_heads, "
                f"{self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim} and must be even, for positions turn pairs of its numbers")
        return self


def _rope(given: Mapping[str, Any]) -> dict[str, Any]:
    """Base and scaling of the rotary positions, wherever the file has them; `rope_scaling` counts if it has both."""
    field = "rope_scaling" if given.get("rope_scaling") else "rope_parameters"
    rope = given.get(field, {})
    if isinstance(rope, RopeScaling):
        return {}
    if not isinstance(rope, Mapping):
        raise ValueError(f"{field} is {json.dumps(rope)} and must be a mapping of fields")
    if nested := [name for name, value in rope.items() if isinstance(value, Mapping)]:
        raise ValueError(f"{field}.{nested[0]} is a mapping and must not be: all layers have the same positions")
    if (share := rope.get("partial_rotary_factor")) not in (None, 1):
        raise ValueError(f"{field}.partial_rotary_factor is {json.dumps(share)} and must be 1")
    found: dict[str, Any] = {"rope_scaling": None}
    if rope.get("rope_theta") is not None:
        found["rope_theta"] = rope["rope_theta"]
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "llama3":
        try:
            found["rope_scaling"] = RopeScaling(
                **{name: rope[name] for name in RopeScaling.model_fields if rope.get(name) is not None}
                | {"rope_type": kind}
            )
        except ValidationError as error:
            raise ValueError(f"{field}.{complaint(error, RopeScaling)}") from None
    elif kind != "default":
        raise ValueError(f'{field}.rope_type is {json.dumps(kind)} and must be "default" or "llama3"')
    return found
