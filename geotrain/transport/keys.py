"""Keys of a job: a small certificate authority, and a certificate per node that it has signed.

    DIR/ca/ca.pem  DIR/ca/key.pem                               stays at home: whoever has the key can let nodes in
    DIR/NODE/ca.pem  certificate.pem  key.pem                   goes to that node

EC P-256. A node proves its name with its certificate, to whom it calls and to who calls it. Needs `cryptography`.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from geotrain.errors import InputError
from geotrain.files import read_bytes
from geotrain.transport.names import NAME_BYTES
from geotrain.transport.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE

CA_DAYS = 1825
"""How long the authority lasts: five years."""
_CLOCK_SKEW = timedelta(minutes=10)
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class NodeKeys:
    """What was done for a node."""

    node: str
    directory: Path
    action: Literal["made", "kept", "renewed"]
    valid_until: datetime


@dataclass(frozen=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_keys(directory: Path, *, job: str, nodes: Sequence[str], days: int, renew: bool = False) -> list[NodeKeys]:
    """Keys for every node: the authority is made once, a node's keys are kept unless `renew`."""
    for node in nodes:
        if not _NODE_NAME.fullmatch(node) or len(node) > NAME_BYTES or node == "ca":
            rule = f"1 to {NAME_BYTES} lowercase letters, digits, dots and hyphens, and not 'ca'"
            raise InputError(f"nodes: {node!r} must be {rule}")
    if len(set(nodes)) < len(nodes):
        raise InputError(f"nodes: {next(node for node in nodes if nodes.count(node) > 1)!r} is given twice")
    if not 1 <= days <= CA_DAYS:
        raise InputError(f"days: {days} must be 1 to {CA_DAYS}, for the job's authority lasts no longer")
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority = _authority(directory / "ca", job)
        return [_node_keys(directory / node, node, authority, days, renew) for node in nodes]
    except OSError as error:
        raise InputError(f"{error.filename or directory}: cannot be written: {error.strerror}") from None


def check_keys(directory: Path, *, job: str, nodes: Sequence[str]) -> None:
    """InputError if keys are there that `make_keys` would refuse to go on with; writes nothing."""
    if not (directory / "ca").exists():
        return
    try:
        authority = _load_authority(directory / "ca", job)
        for node in nodes:
            if (directory / node / CERTIFICATE_FILE).exists():
                _check_issuer(directory / node / CERTIFICATE_FILE, authority)
    except OSError as error:
        raise InputError(f"{error.filename or directory}: cannot be read: {error.strerror}") from None


def _check_issuer(path: Path, authority: _Authority) -> x509.Certificate:
    certificate = _load_certificate(path)
    if certificate.issuer != authority.certificate.subject:
        raise InputError(f"{path}: was made for another job; --renew replaces it")
    return certificate


def _node_keys(directory: Path, node: str, authority: _Authority, days: int, renew: bool) -> NodeKeys:
    path = directory / CERTIFICATE_FILE
    exists = path.exists() and (directory / KEY_FILE).exists()
    if exists and not renew:
        return _answer(directory, node, "kept", _check_issuer(path, authority))
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    end = min(now + timedelta(days=days), authority.certificate.not_valid_after_utc)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    certificate = (
        _builder(_name(node), authority.certificate.subject, key, now, end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(node)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    _write(directory / KEY_FILE, _private_bytes(key), mode=0o600)
    _write(directory / CA_FILE, authority.certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
    _write(path, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return _answer(directory, node, "renewed" if exists else "made", certificate)


def _authority(directory: Path, job: str) -> _Authority:
    """The one that is there, or a new one."""
    if (directory / CA_FILE).exists():
        return _load_authority(directory, job)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    # The random part keeps two jobs of the same name apart.
    name = _name(f"{job} {x509.random_serial_number() & 0xFFFFFFFFFFFF:012x}", job)
    certificate = (
        _builder(name, name, key, now, now + timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(directory / KEY_FILE, _private_bytes(key), mode=0o600)
    _write(directory / CA_FILE, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return _Authority(certificate, key)


def _load_authority(directory: Path, job: str) -> _Authority:
    certificate = _load_certificate(directory / CA_FILE)
    owner = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    if not owner or owner[0].value != job:
        made_for = repr(owner[0].value) if owner else "nobody"
        raise InputError(f"{directory}: was made for job {made_for}, not {job!r}; take another directory")
    path = directory / KEY_FILE
    try:
        key = serialization.load_pem_private_key(read_bytes(path), password=None)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; without it no more keys can be made for this job") from None
    except (ValueError, TypeError):
        raise InputError(f"{path}: is not a private key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise InputError(f"{path}: does not belong to {directory / CA_FILE}")
    return _Authority(certificate, key)


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read_bytes(path))
    except ValueError:
        raise InputError(f"{path}: is not a certificate") from None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str, organization: str | None = None) -> x509.Name:
    owner = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*owner, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Whole or not at all, and with its mode from the first moment on."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    partial.replace(path)


def _answer(
    directory: Path, node: str, action: Literal["made", "kept", "renewed"], certificate: x509.Certificate
) -> NodeKeys:
    return NodeKeys(node=node, directory=directory, action=action, valid_until=certificate.not_valid_after_utc)
