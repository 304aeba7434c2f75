"""A running vLLM server, asked over HTTP."""

import json
import re
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx

from geotrain.errors import RunError
from geotrain.serving.contract import Sampling

_MOST_WORDS = 1000


def transfer_config(directory: Path) -> str:
    """What `vllm serve` wants to be told as --kv-transfer-config, to find keys and values in a directory."""
    return json.dumps(
        {
            "kv_connector": "HandoverConnector",
            "kv_connector_module_path": "geotrain.serving.vllm.connector",
            "kv_role": "kv_consumer",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"directory": str(directory.absolute())},
        }
    )


class Server:
    """One model at one address; RunError says what is wrong with it."""

    def __init__(self, url: str, model: str, *, stop_ids: Collection[int], silence_s: float, key: str = "") -> None:
        """Nobody waits longer than `silence_s` for its next word; the `url` may have the /v1 of OpenAI clients."""
        self._model, self._stop_ids, self._silence_s = model, list(stop_ids), silence_s
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/").removesuffix("/v1"),
            headers={"Authorization": f"Bearer {key}"} if key else None,
            timeout=silence_s,
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
        )

    async def room_tokens(self) -> int:
        """Tokens whose keys and values it can hold; RunError if it does not have the model."""
        with self._plainly():
            models = await self._client.get("/v1/models")
            metrics = await self._client.get("/metrics")
        if models.status_code != httpx.codes.OK:
            raise RunError(f"vLLM does not say which models it has: {models.status_code}: {models.text[:_MOST_WORDS]}")
        try:
            names = [str(one["id"]) for one in models.json()["data"]]
            (labels,) = re.findall(r"^vllm:cache_config_info\{(.*)\}", metrics.text, re.MULTILINE)
            sizes = dict(re.findall(r'(block_size|num_gpu_blocks)="(\d+)"', labels))
            room_tokens = int(sizes["block_size"]) * int(sizes["num_gpu_blocks"])
        except (ValueError, LookupError, TypeError):
            raise RunError("vLLM does not tell its models and the size of its cache as version 0.32 does") from None
        if self._model not in names:
            raise RunError(f"vLLM does not have the model {self._model!r}, but {names}")
        return room_tokens

    async def tokens(
        self, prompt: Sequence[int], sampling: Sampling, *, max_tokens: int, handover: str
    ) -> AsyncGenerator[int, None]:
        """What follows on a prompt, of which all but the last token has been handed over; closing it ends the request.

        Everything is said that a server or a model's files may have other defaults for. Texts that stop are not its
        business, nor ends of text that are not ours.
        """
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": sampling.seed,
            "stop_token_ids": self._stop_ids,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
            "kv_transfer_params": {"geotrain": handover},
        }
        with self._plainly():
            async with self._client.stream("POST", "/v1/completions", json=body) as response:
                if response.status_code != httpx.codes.OK:
                    words = (await response.aread()).decode(errors="replace")[:_MOST_WORDS]
                    raise RunError(f"vLLM has refused it with {response.status_code}: {words}")
                async for line in response.aiter_lines():
                    if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
                        for token in _tokens(data):
                            yield token

    async def close(self) -> None:
        """Leave it."""
        await self._client.aclose()

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException:
            raise RunError(f"vLLM has said nothing for {self._silence_s:g} s") from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise RunError(f"vLLM is lost: {str(error) or type(error).__name__}") from None


def _tokens(data: str) -> list[int]:
    """Of one event."""
    try:
        event = json.loads(data)
        if "error" in event:
            raise RunError(f"vLLM has failed: {json.dumps(event['error'])[:_MOST_WORDS]}")
        return [int(token) for choice in event["choices"] for token in choice["token_ids"] or ()]
    except (ValueError, TypeError, LookupError):
        raise RunError(f"vLLM does not tell its tokens as version 0.32 does: {data[:200]}") from None
