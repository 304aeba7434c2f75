"""The decoder of Llama and its relatives (Qwen, Mistral), whole or any run of its layers.

Parameters have their Hugging Face names with the layers' numbers in the whole model, so that the parameters of all
parts together are those of the model. Knows nothing about processes: torch's tensor-parallel API may cut the linear
layers and the embedding, and heads are counted by what is left of them.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geotrain.model.cache import Cache, Row, attend
from geotrain.model.config import Config
from geotrain.model.linear import Linear
from geotrain.model.rotary import Rotary, rotary, rotate

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


class Attention(nn.Module):
    """Causal attention with rotary positions; several query heads share one key and value head.

    A family may add biases, a norm of each query and key head, or a window beyond which nothing is seen.
    """

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.window = config.sliding_window
        width, shared = (heads * config.head_dim for heads in (config.num_attention_heads, config.num_key_value_heads))
        self.q_proj = Linear(config.hidden_size, width, bias=config.has_input_bias)
        self.k_proj = Linear(config.hidden_size, shared, bias=config.has_input_bias)
        self.v_proj = Linear(config.hidden_size, shared, bias=config.has_input_bias)
        self.o_proj = Linear(width, config.hidden_size, bias=config.attention_bias)
        self.normalizes = config.normalizes_heads
        if self.normalizes:
            self.q_norm = Norm(config.head_dim, config.rms_norm_eps)
            self.k_norm = Norm(config.head_dim, config.rms_norm_eps)

    def forward(self, x: Tensor, *, rotary: Rotary, cache: Cache | Row | None) -> Tensor:
        queries, keys, values = (self._heads(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        if self.normalizes:
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        queries, keys = rotate(queries, rotary), rotate(keys, rotary)
        mixed = (
            attend(queries, keys, values, window=self.window)
            if cache is None
            else cache.attend(self.layer, queries, keys, values, window=self.window)
        )
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Embedding(nn.Embedding):
    """A vector per token; its memory is not initialized."""

    def reset_parameters(self) -> None:
        """Weights come from a file or from `Part.initialize`."""


class Norm(nn.RMSNorm):
    """In the precision of its input, whatever its weight is kept in: torch has no fused kernel for two of them."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class Block(nn.Module):
    """One layer."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, rotary: Rotary, cache: Cache | Row | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotary=rotary, cache=cache)
        x = x + self.mlp(self.post_attention_layernorm(x))
        return x


class Part(nn.Module):
    """Layers `first` to before `last`, with the embedding or the final norm and head where it has that end.

    Holds no numbers until `initialize` or `weights.load` fills it.
    """

    def __init__(
        self, config: Config, *, first: int = 0, last: int | None = None, embeds: bool = True, heads: bool = True
    ) -> None:
        super().__init__()
        last = config.num_hidden_layers if last is None else last
        assert 0 <= first <= last <= config.num_hidden_layers, f"layers {first} to {last}"
        self.config = config
        self.layers = range(first, last)
        self.embeds, self.heads = embeds, heads
        self.model = nn.ModuleDict()
        if embeds:
            self.model["embed_tokens"] = Embedding(config.vocab_size, config.hidden_size)
        self.model["layers"] = nn.ModuleDict({str(layer): Block(config, layer) for layer in self.layers})
        if heads:
            self.model["norm"] = Norm(config.hidden_size, config.rms_norm_eps)
        if heads and not self.shares:
            self.lm_head = Linear(config.hidden_size, config.vocab_size)

    @property
    def shares(self) -> bool:
        """Whether embedding and head are one parameter, under the embedding's name."""
        return self.config.tie_word_embeddings and self.embeds and self.heads

    @property
    def tied_end(self) -> nn.Parameter | None:
        """The embedding or head whose other half another part holds: both need the sum of the two gradients."""
        if not self.config.tie_word_embeddings or self.embeds == self.heads:
            return None
        return self.get_parameter(EMBEDDING if self.embeds else HEAD)

    def initialize(self, seed: int) -> None:
        """Draw each parameter by the seed and its own name: the same numbers however the model is cut."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith("norm.weight"):
                    parameter.fill_(1.0)
                    continue
                if name.endswith(".bias"):
                    parameter.fill_(0.0)
                    continue
                digest = hashlib.blake2b(f"{seed} {stored_name(self.config, name)}".encode(), digest_size=8).digest()
                generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
                drawn = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
                parameter.copy_(drawn.normal_(0.0, self.config.initializer_range, generator=generator))

    def forward(self, x: Tensor, cache: Cache | Row | None = None) -> Tensor:
        """Token ids [batch, token] or hidden states [batch, token, hidden] to hidden states or logits."""
        x = self.hidden(x, cache)
        return self.logits(x) if self.heads else x

    def hidden(self, x: Tensor, cache: Cache | Row | None = None) -> Tensor:
        """What the layers make of token ids or hidden states."""
        x = self.embed(x)
        for out in self.layerwise(x, cache):
            x = out
        if cache is not None:
            cache.advance(x.shape[1])
        return x

    def embed(self, x: Tensor) -> Tensor:
        """Token ids to hidden states, where the part begins with ids."""
        return self.model["embed_tokens"](x) if self.embeds else x

    def layerwise(self, x: Tensor, cache: Cache | Row | None = None, layers: range | None = None) -> Iterator[Tensor]:
        """What each layer, or each of these, makes of hidden states, computed when it is asked for.

        After the last, the cache is to be advanced; before, one may give up and begin again.
        """
        positions = (Cache(x.shape[1]) if cache is None else cache).positions(x.shape[1], x.device)
        turned = rotary(self.config, positions, x.dtype)
        for layer in self.layers if layers is None else layers:
            x = self.get_submodule(f"model.layers.{layer}")(x, turned, cache)
            yield x

    def logits(self, x: Tensor) -> Tensor:
        """Final norm and head."""
        x = self.model["norm"](x)
        if self.shares:
            return F.linear(x, self.get_parameter(EMBEDDING))
        logits: Tensor = self.lm_head(x)
        return logits


def stored_name(config: Config, name: str) -> str:
    """The name under which a parameter's numbers are kept: a tied head's are the embedding's."""
    return EMBEDDING if config.tie_word_embeddings and name == HEAD else name


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The whole model's parameters."""
    with torch.device("meta"):
        return {name: tuple(parameter.shape) for name, parameter in Part(config).named_parameters()}


def tensor_parallel_plan(part: Part) -> dict[str, Any]:
    """How `parallelize_module` cuts the part: two all-reduces per layer and direction; what goes in and out is whole.

    Logits stay cut by words, as a DTensor. An embedding that is also the head stays whole.
    """
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
    )

    whole: dict[str, Any] = {"input_layouts": Replicate(), "output_layouts": Replicate()}
    cuts: dict[str, Any] = {}
    if part.embeds and not part.shares:
        cuts["model.embed_tokens"] = RowwiseParallel(**whole)
    if part.heads and not part.shares:
        cuts["lm_head"] = ColwiseParallel(input_layouts=Replicate(), output_layouts=Shard(-1), use_local_output=False)
    if part.layers:
        # A block's input is marked as whole once, so that its gradients are summed before they are reduced.
        into = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
        cuts |= {f"model.layers.*.{module}": into for module in ("self_attn", "mlp")}
        for module in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
            cuts[f"model.layers.*.{module}"] = ColwiseParallel()
        for module in ("self_attn.o_proj", "mlp.down_proj"):
            cuts[f"model.layers.*.{module}"] = RowwiseParallel()
        if part.config.normalizes_heads:
            # Every process has the norm of some heads, [batch, head, token, head_dim]; its gradient is summed over all.
            for module in ("self_attn.q_norm", "self_attn.k_norm"):
                cuts[f"model.layers.*.{module}"] = SequenceParallel(sequence_dim=1, use_local_output=True)
    return cuts
