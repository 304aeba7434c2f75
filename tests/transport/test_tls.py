"""Only who has a certificate of this job's authority, and under the name in it, gets in."""

import socket
import ssl
from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.transport import Credentials, Identity, Listener, ListenerCounters, RefusedError, connect
from geotrain.transport.frame import FRAME_BYTES, Bye, decode
from geotrain.transport.keys import make_keys
from tests.transport.pairs import JOB, QUICK, header, insecure, soon, tcp_pair


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of this job in `ours`, of another job with the same name and nodes in `theirs`."""
    directory = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        make_keys(directory / name, job=JOB, nodes=["a", "b", "c"], days=1)
    return directory


def identity(directory: Path, node: str, name: str | None = None) -> Identity:
    return Identity(job=JOB, node=name or node, credentials=Credentials(directory / node))


@pytest.fixture
def listener(keys: Path):
    with Listener(identity=identity(keys / "ours", "b"), settings=QUICK) as listener:
        yield listener


def dial(listener: Listener, who: Identity) -> None:
    connect(*listener.address, identity=who, peer="b", channel="c", settings=QUICK, deadline_s=30)


def test_nodes_of_one_job_talk(keys: Path):
    with tcp_pair(a=identity(keys / "ours", "a"), b=identity(keys / "ours", "b")) as (a, b):
        a.send(header(), b"secret", deadline_s=30)
        assert bytes(b.receive(deadline_s=30).data) == b"secret"


def test_a_certificate_of_another_job_is_refused_by_both(keys: Path, listener: Listener):
    with pytest.raises(RefusedError, match="TLS failed: certificate verify failed"):
        dial(listener, identity(keys / "theirs", "a"))
    assert soon(lambda: listener.counters == ListenerCounters(refused=1))


def test_the_listener_refuses_a_certificate_of_another_job(keys: Path, listener: Listener):
    context = Credentials(keys / "theirs" / "a").context(server=False)
    context.verify_mode = ssl.CERT_NONE
    assert_turned_away(listener, context)


def test_no_certificate_is_refused(listener: Listener):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    assert_turned_away(listener, context)


def test_an_older_tls_is_refused(keys: Path, listener: Listener):
    context = Credentials(keys / "ours" / "a").context(server=False)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert_turned_away(listener, context)


def assert_turned_away(listener: Listener, context: ssl.SSLContext) -> None:
    with (
        socket.create_connection(listener.address, timeout=30) as sock,
        pytest.raises(ssl.SSLError, match=r"(?i)alert"),
        context.wrap_socket(sock) as tls,
    ):
        tls.recv(FRAME_BYTES)
    assert soon(lambda: listener.counters == ListenerCounters(refused=1))


def test_no_tls_at_all_is_refused(listener: Listener):
    with pytest.raises(RefusedError, match=r"this node wants TLS$"):
        dial(listener, insecure("a"))
    assert soon(lambda: listener.counters == ListenerCounters(refused=1))


def test_a_listener_without_tls_is_refused(keys: Path):
    with Listener(identity=insecure("b"), settings=QUICK) as listener, pytest.raises(RefusedError):
        dial(listener, identity(keys / "ours", "a"))


def test_a_node_cannot_take_the_name_of_another(keys: Path, listener: Listener):
    with pytest.raises(RefusedError, match="calls itself c, but its certificate says a"):
        dial(listener, identity(keys / "ours", "a", name="c"))
    assert soon(lambda: listener.counters == ListenerCounters(refused=1))


def test_a_listener_cannot_take_the_name_of_another(keys: Path):
    liar = identity(keys / "ours", "c", name="b")
    complaint = "calls itself b, but its certificate says c"
    with Listener(identity=liar, settings=QUICK) as listener, pytest.raises(RefusedError, match=complaint):
        dial(listener, identity(keys / "ours", "a"))


def test_missing_keys_are_one_sentence(tmp_path: Path):
    who = identity(tmp_path, "a")
    with pytest.raises(InputError, match=r"must hold ca.pem, certificate.pem and key.pem; `geotrain keys` makes them$"):
        Listener(identity=who, settings=QUICK)


def test_a_refusal_is_a_frame_that_says_why(listener: Listener, keys: Path):
    context = Credentials(keys / "ours" / "a").context(server=False)
    with socket.create_connection(listener.address, timeout=30) as sock, context.wrap_socket(sock) as tls:
        tls.sendall(bytes(FRAME_BYTES))
        said = b""
        while len(said) < FRAME_BYTES:
            said += tls.recv(FRAME_BYTES)
        assert isinstance(decode(said), Bye)
