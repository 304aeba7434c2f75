"""HTTPS with real sockets, on both event loops."""

import asyncio
import json
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx2 as httpx
import openai
import pytest
import uvloop
from cryptography.hazmat.primitives import serialization

from geotrain.errors import InputError
from geotrain.serving.http.limits import Limits
from geotrain.serving.http.tls import server_context
from geotrain.transport.keys import make_keys
from geotrain.transport.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE
from tests.serving.http.toy import MODEL, Site, Toy, served, wait_until

pytestmark = pytest.mark.slow

NewLoop = Callable[[], asyncio.AbstractEventLoop]
GET = b"GET /health HTTP/1.1\r\nhost: x\r\n"
both_loops = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    make_keys(directory, job="job", nodes=["localhost", "other"], days=2)
    return directory


def context_of(files: Path) -> ssl.SSLContext:
    return server_context(files / "localhost" / CERTIFICATE_FILE, files / "localhost" / KEY_FILE)


@pytest.fixture
def trusting(files: Path) -> ssl.SSLContext:
    """What a client has that knows the authority."""
    return ssl.create_default_context(cafile=str(files / "ca" / CA_FILE))


def opened(site: Site) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", site.port))
    client.settimeout(50)
    return client


def secured(site: Site, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(opened(site), server_hostname="localhost", suppress_ragged_eofs=True)


def read(client: socket.socket) -> bytes:
    """All that comes until the server hangs up, in whatever way."""
    found = b""
    try:
        while more := client.recv(1 << 16):
            found += more
    except (ConnectionError, ssl.SSLError):
        pass
    return found


def takes(site: Site, context: ssl.SSLContext) -> bool:
    try:
        with secured(site, context) as client:
            client.sendall(GET + b"connection: close\r\n\r\n")
            return read(client).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def refusals(site: Site, reason: str) -> float:
    return site.metrics.registry.get_sample_value("geotrain:http_refusals_total", {"reason": reason}) or 0.0


@both_loops
def test_openais_client_over_tls(files: Path, trusting: ssl.SSLContext, new_loop: NewLoop):
    with (
        served(Toy(words=2000), tls=context_of(files), new_loop=new_loop) as site,
        httpx.Client(verify=trusting, timeout=60) as plain,
    ):
        url = f"https://localhost:{site.port}"
        assert plain.get(f"{url}/health").json() == {"status": "ok"}
        body = {"model": MODEL, "prompt": "a", "made_up": "x" * 1_000_000}
        assert plain.post(f"{url}/v1/completions", json=body).status_code == 200
        with (
            openai.DefaultHttpxClient(verify=trusting) as transport,
            openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=transport) as client,
        ):
            stream = client.completions.create(model=MODEL, prompt="a", max_tokens=5, stream=True)
            text = "".join(chunk.choices[0].text for chunk in stream)
    assert text == "".join(f" {number}" * 2000 for number in range(5))


@both_loops
def test_what_does_not_speak_tls_as_it_should_is_refused(files: Path, trusting: ssl.SSLContext, new_loop: NewLoop):
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with served(Toy(), tls=context_of(files), new_loop=new_loop) as site:
        with opened(site) as client:
            client.sendall(GET + b"\r\n")
            assert b"HTTP" not in read(client)
        with pytest.raises(OSError):
            secured(site, old)
        opened(site).close()
        wait_until(lambda: refusals(site, "tls_handshake") == 3)
        trusting.maximum_version = ssl.TLSVersion.TLSv1_2
        assert takes(site, trusting)


@both_loops
@pytest.mark.parametrize("begin", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], ids=["silent", "begun"])
def test_handshakes_that_never_end_are_counted_and_have_a_deadline(
    files: Path, trusting: ssl.SSLContext, new_loop: NewLoop, begin: bytes
):
    # The deadline is long enough for the refusal to be seen first, also on a busy machine.
    limits = Limits(max_connections=40, max_connections_per_address=3, head_s=3.0)
    with served(Toy(), tls=context_of(files), limits=limits, new_loop=new_loop) as site:
        held = [opened(site) for _ in range(3)]
        for client in held:
            client.sendall(begin)
        with opened(site) as client:
            assert read(client) == b""
        assert refusals(site, "too_many_connections_of_address") == 1
        for client in held:
            assert read(client) == b""
            client.close()
        wait_until(lambda: refusals(site, "tls_handshake") == 3)
        for _ in range(5):
            wait_until(lambda: takes(site, trusting))


@both_loops
def test_limits_of_a_head_hold_inside_tls(files: Path, trusting: ssl.SSLContext, new_loop: NewLoop):
    with served(Toy(), tls=context_of(files), limits=Limits(head_s=2.0), new_loop=new_loop) as site:
        with secured(site, trusting) as client:
            client.sendall(GET + b"x: " + b"a" * 70_000)
            assert json.loads(client.recv(1 << 16).partition(b"\r\n\r\n")[2])["error"]["code"] == "headers_too_large"
        with secured(site, trusting) as client:
            client.sendall(GET)
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 408 ")
        with secured(site, trusting) as client:
            assert read(client) == b""
        wait_until(lambda: refusals(site, "silent") == 1)


@both_loops
def test_the_end_waits_for_answers_and_not_for_handshakes(files: Path, trusting: ssl.SSLContext, new_loop: NewLoop):
    content = json.dumps({"model": MODEL, "prompt": "a", "max_tokens": 8, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with served(Toy(delay_s=0.05), tls=context_of(files), limits=Limits(head_s=80000), new_loop=new_loop) as site:
        silent, client = opened(site), secured(site, trusting)
        client.sendall(head + b"content-length: %d\r\n\r\n%b" % (len(content), content))
        first = client.recv(1)
        site.end()
        assert (first + read(client)).count(b"data: ") == 9
        assert read(silent) == b""
        client.close()
        silent.close()


def test_nothing_older_than_tls_1_2(files: Path):
    """As Python has it too, whatever the system's OpenSSL allows."""
    assert context_of(files).minimum_version == ssl.TLSVersion.TLSv1_2


def test_wrong_files_are_one_sentence(files: Path, tmp_path: Path):
    certificate, key = (files / "localhost" / name for name in (CERTIFICATE_FILE, KEY_FILE))
    nonsense, locked = tmp_path / "nonsense.pem", tmp_path / "locked.pem"
    nonsense.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END PRIVATE KEY-----\n")
    private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    locked.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    together = "they must be a certificate and its private key without a password: "
    for first, second, sentence in [
        (certificate, tmp_path / "none", "none: no such file"),
        (tmp_path, key, "is a directory, expected a file"),
        (key, certificate, r"key\.pem: has no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----"),
        (certificate, certificate, r"certificate\.pem: has no private key in PEM"),
        (nonsense, key, together),
        (certificate, nonsense, together),
        (certificate, locked, together),
        (certificate, files / "other" / KEY_FILE, together + "key values mismatch"),
    ]:
        with pytest.raises(InputError, match=sentence) as raised:
            server_context(first, second)
        assert "\n" not in str(raised.value)
