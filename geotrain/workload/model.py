"""The shape of a decoder-only transformer: what its cost depends on, not its weights."""

from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from geotrain.files import Document, Number, Whole


class RopeScaling(Document):
    """Rotary positions stretched as in Llama 3.1: slow rotations are slowed by a factor, fast ones stay."""

    rope_type: Literal["llama3"]
    factor: Number = Field(ge=1)
    low_freq_factor: Number = Field(gt=0)
    """Rotations with fewer turns than this in the original context are slowed in full."""
    high_freq_factor: Number = Field(gt=0)
    """Rotations with more turns than this in the original context stay; in between it is gradual."""
    original_max_position_embeddings: Whole = Field(ge=1)
    """The original context, in tokens."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor is {self.high_freq_factor:g} and must be above low_freq_factor, "
                f"{self.low_freq_factor:g}"
            )
        return self


class Model(Document):
    """A stack of equal transformer layers between an embedding and a head."""

    # A job may give only what it changes of a catalog model, so an editor must not ask for the rest.
    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=lambda schema: schema.pop("required"))

    name: str = "custom"
    layers: Whole = Field(ge=1)
    hidden: Whole = Field(ge=1)
    heads: Whole = Field(ge=1)
    kv_heads: Whole = Field(0, ge=0)
    """Key and value heads (GQA); left out, as many as heads."""
    head_dim: Whole = Field(0, ge=0)
    """Size of one head; left out, hidden / heads."""
    ffn: Whole = Field(0, ge=0)
    """Inner size of the feed-forward block; left out, 4 x hidden."""
    activation: Literal["gelu", "swiglu"] = "gelu"
    """GELU has two feed-forward matrices, SwiGLU three."""
    vocab: Whole = Field(ge=1)
    tied_embeddings: bool = False
    """Head and embedding share one matrix (it still lives on both end stages of a pipeline)."""
    sequence: Whole | None = Field(None, ge=1)
    """Sequence length that a job takes when it names none."""
    family: Literal["llama", "qwen2", "qwen3"] = "llama"
    """What is trained: qwen2 adds biases to query, key and value, qwen3 a norm to each query and key head."""
    rope_theta: Number = Field(10_000.0, gt=0)
    """Base of the rotary positions; as the two below, of no effect on cost."""
    rope_scaling: RopeScaling | None = None
    norm_eps: Number = Field(1e-5, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        filled = dict(data)
        heads, hidden = filled.get("heads"), filled.get("hidden")
        if isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
            filled["kv_heads"] = filled.get("kv_heads") or heads
            filled["ffn"] = filled.get("ffn") or 4 * hidden
            if not filled.get("head_dim"):
                if hidden % heads:
                    raise ValueError(
                        f"hidden is {hidden} and must be a multiple of heads, {heads}, unless head_dim is given"
                    )
                filled["head_dim"] = hidden // heads
        return filled

    @model_validator(mode="after")
    def _heads_group(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads is {self.heads} and must be a multiple of kv_heads, {self.kv_heads}")
        return self

    @property
    def attention_parameters(self) -> int:
        """Weights of one layer's attention: query and output, key and value."""
        return 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)

    @property
    def ffn_parameters(self) -> int:
        """Weights of one layer's feed-forward block."""
        return (3 if self.activation == "swiglu" else 2) * self.hidden * self.ffn

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer; biases and norms are below a thousandth and left out."""
        return self.attention_parameters + self.ffn_parameters

    @property
    def embedding_parameters(self) -> int:
        """Weights of the embedding, and of the head."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """Weights in all; a tied head counts once."""
        return self.layers * self.layer_parameters + (1 if self.tied_embeddings else 2) * self.embedding_parameters
