"""The process that reads requests: JSON, chat template and tokenizer, where they make no one else wait.

Parsing holds Python's lock from the first byte to the last, so a thread would keep the event loop waiting. Through its
socket it gets a line of JSON with the models, then for every body a line and the body; it answers each with a line and
the tokens. `readers` has the other end. Nothing is unpickled: a template that broke out of its sandbox is still here.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from geotrain.serving import rendering
from geotrain.serving.contract import Sampling
from geotrain.serving.http.prompts import Asked, Order, order_of
from geotrain.serving.http.refusals import Refusal
from geotrain.serving.http.schemas import ChatRequest, CompletionRequest
from geotrain.serving.model_card import ModelCard

KINDS: dict[str, type[Asked]] = {kind.__name__: kind for kind in (CompletionRequest, ChatRequest)}
READY = b"ready\n"
_NICE = 5
_TRIM_BYTES = 64 << 10
_KEPT_BYTES = 128 << 20
"""What a request may leave behind in memory: with more the process says that it is used up, or others would lack it."""


class FailedError(Exception):
    """The process made a mistake; says where."""


def packed(order: Order) -> tuple[dict[str, Any], bytes]:
    """An order as plain data, and its tokens."""
    sampling = order.prompts[0][1]
    content = {name: value for name, value in vars(order).items() if name != "prompts"}
    content["sampling"] = asdict(sampling)
    content["prompts"] = [(len(tokens), own.max_tokens) for tokens, own in order.prompts]
    return content, b"".join(array("i", tokens).tobytes() for tokens, _ in order.prompts)


def unpacked(content: dict[str, Any], tokens: bytes) -> Order:
    """What `packed` was given; the tokens are arrays, four bytes each."""
    given = content.pop("sampling")
    sampling = Sampling(**given | {"stop": tuple(given["stop"])})
    prompts, view = [], memoryview(tokens).cast("i")
    for length, max_tokens in content.pop("prompts"):
        prompts.append((array("i", view[:length].tobytes()), replace(sampling, max_tokens=max_tokens)))
        view = view[length:]
    return Order(**content, prompts=prompts)


def _answer(body: bytes, kind: type[Asked], cards: Sequence[ModelCard]) -> tuple[dict[str, Any], bytes]:
    try:
        order, tokens = packed(order_of(body, kind, cards))
    except MemoryError:
        return {"refusal": (400, "invalid_value", "reading the request takes more memory than it may have", None)}, b""
    except Exception as error:
        refusal = Refusal.of(error, request_id="")
        if refusal.status < 500:
            return {"refusal": (refusal.status, refusal.code, refusal.message, refusal.param)}, b""
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        where = "" if at is None else f"{os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}"
        return {"failed": f"{type(error).__name__} at {where}"}, b""
    return {"order": order, "size": len(tokens)}, tokens


def main() -> None:
    """Answer until the other end hangs up."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(_NICE)
    rendering.confine()
    with socket.socket(fileno=0) as mine, mine.makefile("rwb") as stream:
        first = json.loads(stream.readline())
        cards = [ModelCard.parse(content) for content in first["cards"]]
        most_bytes = _resident_bytes() + _KEPT_BYTES
        stream.write(READY)
        stream.flush()
        # A tokenizer that runs out of memory writes a line before it ends the process: clients could fill the log.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        with suppress(BrokenPipeError, ConnectionResetError):
            for line in stream:
                asked = json.loads(line)
                rendering.allow(first["limit_s"])
                content, tokens = _answer(stream.read(asked["size"]), KINDS[asked["kind"]], cards)
                rendering.allow(0)
                if asked["size"] > _TRIM_BYTES:
                    _trim()
                content["used_up"] = _resident_bytes() > most_bytes
                stream.write(json.dumps(content).encode() + b"\n" + tokens)
                stream.flush()


def _trim() -> None:
    """Give free memory back to the system, where the C library can."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
