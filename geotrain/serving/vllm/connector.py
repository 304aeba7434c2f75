"""Loaded by vLLM, on its command line and without a change of it: prompts come with their keys and values.

The scheduler's side says how many tokens need not be computed, the worker's side writes their keys and values into the
paged cache, by the function with which vLLM's own attention does. What cannot be used is computed by vLLM itself.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from geotrain.errors import RunError
from geotrain.serving.vllm.handover import Form, taken

_TESTED = "0.32"
_ASKED = {
    "build_connector_meta",
    "get_num_new_matched_tokens",
    "save_kv_layer",
    "start_load_kv",
    "update_state_after_alloc",
    "wait_for_layer_load",
    "wait_for_save",
}

try:
    from vllm import __version__ as _version
    from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
    from vllm.distributed.kv_transfer.kv_connector.v1.base import (
        KVConnectorBase_V1,
        KVConnectorMetadata,
        KVConnectorRole,
    )
    from vllm.logger import init_logger
    from vllm.model_executor.layers.attention import Attention
    from vllm.model_executor.models.utils import extract_layer_index
    from vllm.v1.kv_cache_interface import FullAttentionSpec
except ImportError as error:
    raise ImportError(f"this connector is for vLLM {_TESTED}; the one here is without a part of it: {error}") from error

if KVConnectorBase_V1.__abstractmethods__ != _ASKED:
    other = ", ".join(sorted(_ASKED ^ KVConnectorBase_V1.__abstractmethods__))
    raise ImportError(
        f"this connector is for vLLM {_TESTED}; the one here is {_version} and has other methods: {other}"
    )

_log = init_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Load:
    """Tokens of a prompt from `start` on whose keys and values go into blocks."""

    name: str
    prompt: list[int]
    start: int
    blocks: list[int]
    """Of the whole prompt."""


@dataclass
class Loads(KVConnectorMetadata):  # type: ignore[misc]
    """Those of one step."""

    loads: list[Load] = field(default_factory=list)


class HandoverConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """Takes over what a bridge has left in the `directory` of `kv_connector_extra_config`."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        directory = self._kv_transfer_config.get_from_extra_config("directory", None)
        if not isinstance(directory, str) or not Path(directory).is_absolute():
            raise ValueError(f"kv_connector_extra_config: directory is {directory!r} and must be an absolute path")
        groups = kv_cache_config.kv_cache_groups
        if len(groups) != 1 or type(groups[0].kv_cache_spec) is not FullAttentionSpec:
            raise ValueError("keys and values are only taken over by models whose layers all attend to all tokens")
        if vllm_config.parallel_config.decode_context_parallel_size != 1:
            raise ValueError("keys and values are only taken over with a --decode-context-parallel-size of 1")
        self._directory = Path(directory)
        self._block_tokens: int = groups[0].kv_cache_spec.block_size
        self._loads = Loads()
        self._layers: dict[int, Attention] = {}
        self._broken: set[int] = set()

    # The scheduler's side.

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """All tokens of the prompt but the last, which the prefill has chosen, if they are there."""
        name, prompt = _name(request), request.prompt_token_ids
        if name is None or prompt is None:
            return 0, False
        tokens = len(prompt) - 1
        try:
            with taken(self._directory, name, prompt) as handed:
                self._check(handed.form, tokens)
        except RunError as error:
            _log.warning("request %s is computed here: %s", request.request_id, error)
            return 0, False
        return max(tokens - num_computed_tokens, 0), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """It has its blocks."""
        if num_external_tokens:
            self._loads.loads.append(
                Load(
                    name=request.kv_transfer_params["geotrain"],
                    prompt=request.prompt_token_ids[:-1],
                    start=request.num_prompt_tokens - 1 - num_external_tokens,
                    blocks=blocks.get_block_ids()[0],
                )
            )

    def build_connector_meta(self, scheduler_output: Any) -> Loads:
        """What this step loads."""
        loads, self._loads = self._loads, Loads()
        return loads

    def _check(self, form: Form, tokens: int) -> None:
        config = self._vllm_config.model_config
        here = config.get_total_num_hidden_layers(), config.get_total_num_kv_heads(), tokens, config.get_head_size()
        if here != (there := (form.layers, form.kv_heads, form.tokens, form.head_dim)):
            raise RunError(f"[layers, kv_heads, tokens, head_dim] are {list(there)} and must be {list(here)}")

    # The worker's side.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """The layers that are here."""
        layers = self._vllm_config.compilation_config.static_forward_context
        for name in kv_caches:
            layer, number = layers[name], extract_layer_index(name)
            if not isinstance(layer, Attention) or not hasattr(layer.impl, "do_kv_cache_update"):
                raise ValueError(f"{name}: an attention by {type(layer.impl).__name__} takes no keys and values over")
            if number >= self._vllm_config.model_config.get_total_num_hidden_layers():
                raise ValueError(f"{name}: nobody hands over the keys and values of a draft model")
            self._layers[number] = layer

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Load all, before the model runs; the blocks of what is gone meanwhile are told to the scheduler."""
        for load in self._get_connector_metadata().loads:
            try:
                self._load(load)
            except RunError as error:
                _log.warning("keys and values were not loaded: %s", error)
                self._broken.update(load.blocks[load.start // self._block_tokens :])

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Since the last call."""
        broken, self._broken = self._broken, set()
        return broken

    def _load(self, load: Load) -> None:
        blocks = torch.tensor(load.blocks)[:, None] * self._block_tokens
        slots = (blocks + torch.arange(self._block_tokens)).flatten()[load.start : len(load.prompt)]
        with taken(self._directory, load.name, load.prompt) as handed:
            for number, layer in self._layers.items():
                kv = handed.layer(number)[:, self._heads(handed.form), load.start :].transpose(1, 2)
                cache = layer.kv_cache
                keys, values = kv.to(cache.device, self._vllm_config.model_config.dtype)
                layer.impl.do_kv_cache_update(
                    layer, keys.contiguous(), values.contiguous(), cache, slots.to(cache.device)
                )

    def _heads(self, form: Form) -> slice:
        """Those of this worker; where workers outnumber heads, some share one."""
        rank, ranks = get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()
        first = rank * form.kv_heads // ranks
        return slice(first, first + max(form.kv_heads // ranks, 1))

    # What a connector must have and this one does not need.

    def wait_for_layer_load(self, layer_name: str) -> None:
        """All is loaded before."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing is handed on."""

    def wait_for_save(self) -> None:
        """Nothing is handed on."""


def _name(request: Any) -> str | None:
    name = (request.kv_transfer_params or {}).get("geotrain")
    return name if isinstance(name, str) else None
