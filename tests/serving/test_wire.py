"""Messages and tensors between processes: whole and in order, or a clear error; never a crash."""

import asyncio
import resource
import socket
import struct
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.serving.contract import Sampling
from geotrain.serving.joining import Listener, connect
from geotrain.serving.messages import (
    Cancel,
    DecodeStart,
    Error,
    FirstToken,
    Forget,
    Heartbeat,
    Hello,
    Hidden,
    Kv,
    Measure,
    Measured,
    Message,
    Ready,
    Report,
    Slice,
    Step,
    Task,
    Tensor,
    Token,
    Tokens,
    Window,
    Windows,
    decode,
    encode,
    payload_bytes,
)
from geotrain.serving.tensors import pack, unpack
from geotrain.serving.wire import Frame, Limits, Party, Wire
from geotrain.transport import ClosedError, DeadlineError, FrameError, RefusedError

SECRET = "only we know this"
SERVE = Party(role="serve", name="east", secret=SECRET)
WORKER = Party(role="worker", name="east-0", secret=SECRET)
SAMPLING = Sampling(max_tokens=7, temperature=0.5, top_p=0.9, seed=3, stop=("\n", "海"))
IDS = Tensor(dtype="int64", shape=(3,))
SLICE = Slice(request="r-1", position=4, tokens=3, prompt_tokens=7, sampling=SAMPLING)
MESSAGES: list[Message] = [
    WORKER.hello,
    Task(
        booking=1,
        place=0,
        layers=(0, 2),
        chunk=2,
        slices=(SLICE,),
        unit_s=0.1,
        seldom_s=0.2,
        next="/n",
        decoder="/d",
        tensor=IDS,
    ),
    Task(booking=1, place=1, layers=(2, 4), chunk=2, slices=(SLICE,), unit_s=0.1, seldom_s=0.2, decoder="/d"),
    Hidden(booking=1, chunk=2, tensor=Tensor(dtype="bfloat16", shape=(3, 8))),
    Kv(request="r-1", layer=5, position=4, tensor=Tensor(dtype="float32", shape=(2, 2, 3, 4))),
    FirstToken(request="r-1", token=17),
    Report(booking=1, place=0, chunk=2, what="done", now_s=2.5, pieces=((1.0, 1.5), (2.0, 2.5)), waited_s=0.5),
    Cancel(requests=("r-1", "r-2")),
    Forget(bookings=(1, 2)),
    Ready(address="/run/geotrain/east-0.sock", room_tokens=64),
    Measure(points=((1, 0), (64, 512))),
    Measured(unit_s=(0.001, 0.002)),
    Step(number=12, begin_s=100.5, length_s=2.0, windows=(Window(mark=3, start_s=99.0, end_s=99.5),), complete=True),
    Windows(trains=True, offered_s=9.0, used_s=5.0, overruns=1, overrun_s=0.1, guard_s=0.001),
    Heartbeat(now_s=3.0),
    DecodeStart(request="r-1", sampling=SAMPLING, tensor=IDS),
    Tokens(tokens=(Token(request="r-1", text="a", token=5), Token(request="r-2", text="", token=None, finish="stop"))),
    Error(request="r-1", message="no room"),
]


def frame(header: bytes, payload: bytes = b"", *, told: int | None = None) -> bytes:
    return struct.pack("<IQ", len(header), len(payload) if told is None else told) + header + payload


GREETING = frame(encode(WORKER.hello))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind)
def test_every_message_survives_its_way(message: Message):
    assert decode(encode(message)) == message


def run(story: Callable[[], Awaitable[None]]) -> None:
    """To its end within seconds, and nothing is left running."""

    async def whole() -> None:
        async with asyncio.timeout(30):
            await story()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    asyncio.run(whole())


async def echo(wire: Wire) -> None:
    while True:
        await wire.send(*await wire.receive())


async def listening(
    address: str, serve: Callable[[Wire], Awaitable[object]] = echo, me: Party = SERVE, **limits: Any
) -> Listener:
    listener = Listener(me, serve, limits=Limits(**limits))
    await listener.open(address)
    return listener


def test_messages_and_tensors_there_and_back(tmp_path: Path):
    async def story() -> None:
        listener = await listening(str(tmp_path / "s"))
        wire = await connect(listener.address, WORKER)
        assert (wire.peer.role, wire.peer.name) == ("serve", "east")
        for message in MESSAGES[1:]:
            content = bytes(range(256))[: payload_bytes(message)]
            await wire.send(message, content)
            assert await wire.receive() == Frame(message, bytearray(content))
        # Larger than any buffer on the way.
        kv = torch.randn(2, 4, 3000, 64).to(torch.bfloat16)
        about, data = pack(kv)
        await wire.send(Kv(request="r", layer=0, position=0, tensor=about), data)
        message, payload = await wire.receive()
        assert isinstance(message, Kv)
        assert torch.equal(unpack(message.tensor, payload), kv)
        await wire.close()
        await listener.close()
        assert not (tmp_path / "s").exists()

    run(story)


@pytest.mark.parametrize("shape", [(), (0, 4), (3,), (2, 3, 5)], ids=str)
def test_tensors_keep_their_bits(shape: tuple[int, ...]):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
        tensor = torch.randn(shape).to(dtype)
        about, data = pack(tensor)
        assert torch.equal(unpack(about, bytearray(data)), tensor)
    sliced = torch.arange(24).view(2, 3, 4)[:, 1:]
    about, data = pack(sliced)
    assert torch.equal(unpack(about, bytearray(data)), sliced)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (Hello(role="worker", name="w", secret="guess"), "has another secret"),
        (WORKER.hello.model_copy(update={"version": 9}), "speaks version 9, this side speaks 1"),
        (Heartbeat(now_s=0.0), "speaks before it greets"),
    ],
    ids=["secret", "version", "no hello"],
)
def test_who_does_not_belong_here_is_told_why(said: Message, reason: str, tmp_path: Path):
    async def story() -> None:
        listener = await listening(str(tmp_path / "s"))
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(frame(encode(said)))
        assert await reader.read() == frame(encode(Error(message=reason)))
        writer.close()
        await listener.close()

    run(story)


def test_who_is_refused_hears_why(tmp_path: Path):
    async def story() -> None:
        listener = await listening(str(tmp_path / "s"))
        with pytest.raises(RefusedError, match="s: has another secret"):
            await connect(listener.address, Party(role="worker", name="w", secret="guess"))
        await listener.close()

    run(story)


def test_a_listener_that_does_not_know_the_secret_is_not_believed(tmp_path: Path):
    async def story() -> None:
        # It lets everybody in.
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            header = encode(Hello(secret="x", role="decoder", name="d"))
            writer.write(frame(header))
            await reader.read()
            writer.close()

        server = await asyncio.start_unix_server(serve, tmp_path / "s")
        with pytest.raises(RefusedError, match="has another secret"):
            await connect(str(tmp_path / "s"), WORKER)
        server.close()
        await asyncio.sleep(0.01)

    run(story)


def test_the_secret_is_shown_nowhere(caplog: pytest.LogCaptureFixture):
    assert SECRET not in repr(WORKER) + repr(WORKER.hello)
    with pytest.raises(FrameError) as failure:
        decode(encode(WORKER.hello).replace(b'"role":"worker"', b'"role":"' + SECRET.encode() + b'"'))
    assert SECRET not in str(failure.value)
    assert SECRET not in caplog.text


KV = Kv(request="r", layer=0, position=0, tensor=Tensor(dtype="float32", shape=(2,)))


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", FrameError, "a frame of 542393671 \\+ .* bytes, allowed are"),
        (frame(b"{}"), FrameError, "Unable to extract tag"),
        (frame(b"\xff\xfe"), FrameError, "Invalid JSON"),
        (frame(b"[" * 5000), FrameError, "recursion limit exceeded"),
        (frame(b'{"kind":"heartbeat","now_s":1,"x":2}'), FrameError, "heartbeat.x: Extra inputs are not permitted"),
        (frame(b'{"kind":"heartbeat","now_s":-1}'), FrameError, "greater than or equal to 0"),
        (frame(b'{"kind":"heartbeat","now_s":NaN}'), FrameError, "finite number"),
        (frame(b'{"kind":"pickle","data":"gASV"}'), FrameError, "'pickle' found using 'kind' does not match"),
        (frame(encode(KV), b"12345678")[:-1], ClosedError, "the peer has hung up"),
        (frame(encode(KV), b"1234567"), FrameError, "kind kv with 7 bytes, and its header says 8"),
        (frame(encode(Heartbeat(now_s=1.0)), b"1"), FrameError, "with 1 bytes, and its header says 0"),
        (frame(encode(KV), told=2**63), FrameError, "allowed are 8388608 \\+ 1073741824"),
        (struct.pack("<IQ", 2**32 - 1, 0), FrameError, "a frame of 4294967295 \\+ 0 bytes"),
        (GREETING[:20], ClosedError, "hung up"),
        (b"", ClosedError, "hung up"),
    ],
    ids=range(15),
)
def test_nonsense_ends_the_connection_with_a_clear_error(said: bytes, error: type, words: str, tmp_path: Path):
    heard: list[Exception] = []

    async def serve(wire: Wire) -> None:
        try:
            await wire.receive()
        except Exception as failure:
            heard.append(failure)
            raise

    async def story() -> None:
        listener = await listening(str(tmp_path / "s"), serve)
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(GREETING)
        await reader.readexactly(12)
        writer.write(said)
        writer.write_eof()
        while await _read(reader):
            pass
        writer.close()
        await listener.close()

    run(story)
    with pytest.raises(error, match=words):
        raise heard[0]


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(4096)
    except ConnectionError:
        return b""


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=300) | st.sampled_from([frame(encode(one)) for one in MESSAGES]), max_size=8))
def test_whatever_strangers_say_the_others_are_served(said: list[bytes]):
    async def story() -> None:
        listener = await listening(f"{directory}/s", frame_s=20.0, greeting_s=20.0)
        _, writer = await asyncio.open_unix_connection(listener.address)
        writer.write(b"".join(said))
        wire = await connect(listener.address, WORKER)
        await wire.send(Heartbeat(now_s=1.0))
        assert (await wire.receive()).message == Heartbeat(now_s=1.0)
        writer.close()
        await wire.close()
        await listener.close()

    with tempfile.TemporaryDirectory() as directory:
        run(story)


@settings(max_examples=200)
@given(st.data())
def test_no_bytes_make_a_header_that_is_none(data: st.DataObject):
    header = bytearray(encode(data.draw(st.sampled_from(MESSAGES))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(header)))
        header[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    try:
        message = decode(bytes(header))
    except FrameError as error:
        assert len(str(error)) < 300
        assert str(error).isprintable()
    else:
        assert decode(encode(message)) == message


def test_a_stranger_gets_next_to_no_memory(tmp_path: Path):
    heard: list[bytes] = []

    async def story() -> None:
        listener = await listening(str(tmp_path / "s"))
        for lengths in [(4097, 0), (10, 1), (2**32 - 1, 2**64 - 1)]:
            reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
            writer.write(struct.pack("<IQ", *lengths))
            heard.append(await _read(reader))
            writer.close()
        await listener.close()

    run(story)
    assert heard == [b""] * 3


def test_who_says_nothing_or_stops_within_a_frame_is_not_waited_for(tmp_path: Path):
    heard: list[Exception] = []

    async def serve(wire: Wire) -> None:
        with pytest.raises(DeadlineError, match="nothing came"):
            await wire.receive(deadline_s=0.05)
        await wire.send(Heartbeat(now_s=0.0))
        try:
            await wire.receive()
        except ClosedError as error:
            heard.append(error)

    async def story() -> None:
        strict = await listening(str(tmp_path / "s"), serve, frame_s=0.1, greeting_s=0.1)
        for said in (b"", GREETING[:-1]):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
            writer.write(said)
            assert await _read(reader) == b""
            writer.close()
        await strict.close()
        listener = await listening(str(tmp_path / "s"), serve, frame_s=0.1, greeting_s=20.0)
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(GREETING)
        await reader.readuntil(b'"held_tokens":0}')
        writer.write(frame(encode(KV), b"12345678")[:-1])
        assert await _read(reader) == b""
        writer.close()
        await listener.close()

    run(story)
    assert [str(error) for error in heard] == ["the peer has taken longer than 0.1 s over a frame"]


def test_whoever_sends_faster_than_the_peer_reads_waits_and_then_gives_up(tmp_path: Path):
    reading = asyncio.Event()

    async def serve(wire: Wire) -> None:
        await reading.wait()

    async def story() -> None:
        listener = await listening(str(tmp_path / "s"), serve)
        wire = await connect(listener.address, WORKER, limits=Limits(frame_s=0.3))
        most = torch.zeros(1 << 20)
        about, data = pack(most)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ClosedError, match=r"longer than 0\.3 s"):
            for _ in range(1000):
                await wire.send(Kv(request="r", layer=0, position=0, tensor=about), data)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100e3
        with pytest.raises(ClosedError, match="closed"):
            await wire.send(Heartbeat(now_s=0.0))
        reading.set()
        await wire.close()
        await listener.close()

    run(story)


def test_many_send_at_once_and_some_are_cancelled_and_no_frame_is_broken(tmp_path: Path):
    got: list[int] = []

    async def serve(wire: Wire) -> None:
        while True:
            message, payload = await wire.receive()
            if isinstance(message, Heartbeat):
                await wire.send(message)
                continue
            assert isinstance(message, Kv)
            assert set(payload) == {message.layer}
            got.append(message.layer)

    async def story() -> None:
        listener = await listening(str(tmp_path / "s"), serve)
        wire = await connect(listener.address, WORKER)
        about = Tensor(dtype="float32", shape=(300_000,))
        sends = [
            asyncio.create_task(
                wire.send(Kv(request="r", layer=n, position=0, tensor=about), bytes([n]) * about.size_bytes)
            )
            for n in range(20)
        ]
        await asyncio.sleep(0)
        for task in sends[::3]:
            task.cancel()
        await asyncio.gather(*sends, return_exceptions=True)
        await wire.send(Heartbeat(now_s=0.0))
        await wire.receive()
        await wire.close()
        await listener.close()

    run(story)
    assert set(got) >= {n for n in range(20) if n % 3}
    assert len(set(got)) == len(got)


_PEER = """
import asyncio, sys
from geotrain.serving.joining import connect
from geotrain.serving.messages import Heartbeat
from geotrain.serving.wire import Party

async def main():
    wire = await connect(sys.argv[1], Party(role="worker", name="w", secret=sys.argv[2]))
    await wire.send(Heartbeat(now_s=1.0))
    await asyncio.sleep(100)

asyncio.run(main())
"""


def test_a_peer_that_is_killed_is_noticed_at_once(tmp_path: Path):
    heard: list[str] = []

    async def serve(wire: Wire) -> None:
        assert (await wire.receive()).message == Heartbeat(now_s=1.0)
        processes[0].kill()
        try:
            await wire.receive()
        except ClosedError as error:
            heard.append(str(error))
            done.set()

    done = asyncio.Event()
    processes: list[asyncio.subprocess.Process] = []

    async def story() -> None:
        listener = await listening(str(tmp_path / "s"), serve)
        command = [sys.executable, "-c", _PEER, listener.address, SECRET]
        processes.append(await asyncio.create_subprocess_exec(*command))
        await done.wait()
        await processes[0].wait()
        await listener.close()

    run(story)
    assert heard[0].startswith(("the peer has hung up", "the connection is lost"))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/" + "x" * 200, "nobody can listen there"),
        ("/no/such/directory", "nobody can listen there: No such file or directory"),
    ],
    ids=["long path", "no directory"],
)
def test_where_nobody_may_listen_is_said(address: str, words: str):
    async def story() -> None:
        with pytest.raises(InputError, match=words):
            await listening(address)

    run(story)


def test_nobody_there_is_said_and_a_socket_left_behind_is_no_obstacle(tmp_path: Path):
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "s"))
    left.close()

    async def story() -> None:
        address = str(tmp_path / "s")
        with pytest.raises(ClosedError, match="cannot be reached: Connection refused"):
            await connect(address, WORKER)
        listener = await listening(address)
        assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
        await (await connect(address, WORKER)).close()
        await listener.close()

    run(story)
