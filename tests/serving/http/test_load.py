"""A thousand clients at once, more than the engine takes."""

import asyncio
import json
from collections import Counter

from geotrain.serving.contract import Piece
from tests.serving.http.toy import MODEL, Site, Toy, served

CLIENTS, CAPACITY = 1000, 300
BODY = json.dumps({"model": MODEL, "prompt": "a", "max_tokens": 5, "stream": True}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
REQUEST = HEAD + b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)


class Crowded(Toy):
    """Answers nobody before all have asked."""

    async def _piece(self, number: int, last: bool) -> Piece:
        while len(self.prompts) < CLIENTS:  # noqa: ASYNC110 -- there is no event: a list grows
            await asyncio.sleep(0.1)
        return await super()._piece(number, last)


async def ask(site: Site) -> str:
    """How a streaming client's request ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(REQUEST)
    answer = await reader.read(-1)
    writer.close()
    if answer.startswith(b"HTTP/1.1 429 ") and b"\r\nretry-after: 2\r\n" in answer:
        return "turned away"
    is_whole = answer.startswith(b"HTTP/1.1 200 ") and answer.count(b"data: {") == 5 and b"data: [DONE]" in answer
    return "served" if is_whole else answer.decode()


def test_a_thousand_clients_are_served_or_turned_away():
    async def ask_all() -> Counter[str]:
        return Counter(await asyncio.gather(*(ask(site) for _ in range(CLIENTS))))

    with served(Crowded(capacity=CAPACITY)) as site:
        ends = asyncio.run(ask_all())
    assert ends == {"served": CAPACITY, "turned away": CLIENTS - CAPACITY}
    assert site.engine.under_way == set()
    assert len(site.entries(CLIENTS)) == CLIENTS
