"""In place of vLLM where its size would hinder: reads handovers as the connector does, decodes by our own model."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from geotrain.model import Part
from geotrain.serving.contract import Piece, Sampling
from geotrain.serving.tensors import unpack
from geotrain.serving.vllm.handover import taken
from tests.serving.prefilling import decoder
from tests.serving.vllm.handing import prefilled


class StandIn:
    def __init__(self, directory: Path, part: Part) -> None:
        self._directory, self._part = directory, part
        self.model, self.room = "tiny", '{block_size="16",engine="0",num_cpu_blocks="7",num_gpu_blocks="100"}'
        self.asked: list[dict[str, Any]] = []
        """Bodies of all requests so far."""
        self.left = 0
        """Clients that did not wait for the end."""
        self.reads = True
        """Whether it looks for what is handed over; it breaks if that is not there."""
        self.refuses = ""
        self.says = ""
        """An event in place of all tokens."""
        self.holds_at: int | None = None
        """Tokens after which it falls silent."""
        self.breaks_at: int | None = None
        """Tokens after which it hangs up."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            await self._answer(reader, writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if head.startswith("get"):
            self._say(writer, 400 if self.refuses else 200, self.refuses or self._about(head.split()[1]))
            return
        assert head.startswith("post /v1/completions ")
        size = int(head.split("content-length: ")[1].split("\r\n")[0])
        self.asked.append(body := json.loads(await reader.readexactly(size)))
        if self.refuses:
            self._say(writer, 400, self.refuses)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if self.says:
            _event(writer, self.says)
        else:
            for number, token in enumerate(self._decode(body)):
                if number == self.breaks_at:
                    return
                if number == self.holds_at:
                    await self._silence(reader)
                    return
                _event(writer, json.dumps({"choices": [{"text": "", "token_ids": [token]}]}))
                await writer.drain()
                await asyncio.sleep(0)
        _event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _about(self, path: str) -> str:
        if path == "/v1/models":
            return json.dumps({"object": "list", "data": [{"id": self.model, "object": "model"}]})
        return f"vllm:cache_config_info{self.room} 1.0\n"

    def _say(self, writer: asyncio.StreamWriter, status: int, words: str) -> None:
        writer.write(
            f"HTTP/1.1 {status} So\r\nConnection: close\r\nContent-Length: {len(words)}\r\n\r\n{words}".encode()
        )

    async def _silence(self, reader: asyncio.StreamReader) -> None:
        assert await reader.read() == b""
        self.left += 1

    def _decode(self, body: dict[str, Any]) -> Iterator[int]:
        *prompt, first = body["prompt"]
        sampling = Sampling(max_tokens=body["max_tokens"] + 1, temperature=body["temperature"])
        running = decoder(self._part, stop_ids=body["stop_token_ids"])
        running.reserve("it", prompt, sampling)
        if self.reads:
            with taken(self._directory, body["kv_transfer_params"]["geotrain"], prompt) as handed:
                for layer in range(handed.form.layers):
                    running.receive("it", layer, 0, handed.layer(layer))
        else:
            for kv, payload in prefilled(self._part, "it", prompt)[0]:
                running.receive("it", kv.layer, kv.position, unpack(kv.tensor, payload))
        running.join("it", first)
        while running.running:
            piece = running.step()["it"]
            assert isinstance(piece, Piece) and piece.token is not None
            yield piece.token


def _event(writer: asyncio.StreamWriter, data: str) -> None:
    event = f"data: {data}\n\n".encode()
    writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
