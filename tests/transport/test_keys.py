import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from geotrain.errors import InputError
from geotrain.transport.keys import make_keys


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_private_keys_are_for_the_owner_only(tmp_path: Path):
    made = make_keys(tmp_path / "keys", job="j", nodes=["a", "b"], days=30)
    assert [(keys.node, keys.action) for keys in made] == [("a", "made"), ("b", "made")]
    private = sorted((tmp_path / "keys").glob("*/key.pem"))
    assert [path.parent.name for path in private] == ["a", "b", "ca"]
    assert [mode(path) for path in private] == [0o600] * 3
    assert [mode(path) for path in (tmp_path / "keys", *(tmp_path / "keys").iterdir())] == [0o700] * 4


def test_the_certificate_names_the_node_and_ends_in_time(tmp_path: Path):
    [keys] = make_keys(tmp_path, job="j", nodes=["east-0"], days=30)
    certificate = x509.load_pem_x509_certificate((tmp_path / "east-0" / "certificate.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["east-0"]
    assert abs(keys.valid_until - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=1)
    assert certificate.not_valid_before_utc < datetime.now(UTC)


def test_again_keeps_what_is_there_and_adds_what_is_missing(tmp_path: Path):
    make_keys(tmp_path, job="j", nodes=["a"], days=30)
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    made = make_keys(tmp_path, job="j", nodes=["a", "b"], days=30)
    assert [(keys.node, keys.action) for keys in made] == [("a", "kept"), ("b", "made")]
    assert {path: path.read_bytes() for path in before} == before


def test_renew_replaces_the_nodes_keys_but_not_the_authority(tmp_path: Path):
    make_keys(tmp_path, job="j", nodes=["a"], days=1)
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    [keys] = make_keys(tmp_path, job="j", nodes=["a"], days=30, renew=True)
    assert keys.action == "renewed"
    changed = sorted(path.relative_to(tmp_path).as_posix() for path, old in before.items() if path.read_bytes() != old)
    assert changed == ["a/certificate.pem", "a/key.pem"]


@pytest.mark.parametrize(
    ("nodes", "days", "complaint"),
    [
        pytest.param(["A"], 1, "nodes: 'A' must be 1 to 40 lowercase letters", id="upper case"),
        pytest.param(["../x"], 1, "nodes: '../x' must be", id="a path"),
        pytest.param(["ca"], 1, "nodes: 'ca' must be", id="the authority's place"),
        pytest.param([""], 1, "nodes: '' must be", id="empty"),
        pytest.param(["a", "b", "a"], 1, "nodes: 'a' is given twice", id="twice"),
        pytest.param(["a"], 0, "days: 0 must be 1 to 1825", id="no days"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(tmp_path: Path, nodes: list[str], days: int, complaint: str):
    with pytest.raises(InputError) as error:
        make_keys(tmp_path / "keys", job="j", nodes=nodes, days=days)
    assert complaint in str(error.value)
    assert not (tmp_path / "keys").exists()


def test_a_directory_of_another_job_is_left_alone(tmp_path: Path):
    make_keys(tmp_path, job="j", nodes=["a"], days=1)
    with pytest.raises(InputError, match=r"ca: was made for job 'j', not 'k'; take another directory$"):
        make_keys(tmp_path, job="k", nodes=["b"], days=1)


def test_an_authority_without_its_key_makes_no_more(tmp_path: Path):
    make_keys(tmp_path, job="j", nodes=["a"], days=1)
    (tmp_path / "ca" / "key.pem").unlink()
    with pytest.raises(InputError, match=r"no such file; without it no more keys can be made for this job$"):
        make_keys(tmp_path, job="j", nodes=["b"], days=1)


def test_what_is_no_certificate_is_named(tmp_path: Path):
    make_keys(tmp_path, job="j", nodes=["a"], days=1)
    (tmp_path / "ca" / "ca.pem").write_text("nonsense")
    with pytest.raises(InputError, match=r"ca.pem: is not a certificate$"):
        make_keys(tmp_path, job="j", nodes=["b"], days=1)
