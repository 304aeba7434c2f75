"""TLS 1.3 with certificates on both sides, all made by one CA: the job's."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from geotrain.errors import InputError
from geotrain.files import open_regular
from geotrain.transport.errors import RefusedError, plain

CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.pem", "certificate.pem", "key.pem"


@dataclass(frozen=True)
class Credentials:
    """A node's directory as `geotrain keys` writes it."""

    directory: Path

    def context(self, *, server: bool) -> ssl.SSLContext:
        """TLS 1.3 only; the peer must show a certificate of the same CA, and nothing else is trusted."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The name is compared with the greeting (`certified_name`): a node has one name, whatever its address is.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        if server:
            context.num_tickets = 0
        try:
            for name in (CA_FILE, CERTIFICATE_FILE, KEY_FILE):
                # OpenSSL would wait for whatever writes into a pipe.
                open_regular(self.directory / name).close()
            context.load_verify_locations(self.directory / CA_FILE)
            # Without a password here, one would be asked for at the terminal.
            context.load_cert_chain(self.directory / CERTIFICATE_FILE, self.directory / KEY_FILE, password="")
        except FileNotFoundError:
            names = f"{CA_FILE}, {CERTIFICATE_FILE} and {KEY_FILE}"
            raise InputError(f"{self.directory}: must hold {names}; `geotrain keys` makes them") from None
        except OSError as error:
            raise InputError(f"{self.directory}: these keys cannot be used: {plain(error)}") from None
        return context


def certified_name(sock: ssl.SSLSocket | ssl.SSLObject) -> str:
    """The node name that the peer's certificate stands for."""
    certificate = sock.getpeercert() or {}
    names = [str(entry[1]) for entry in certificate.get("subjectAltName", ()) if entry[0] == "DNS"]
    if len(names) != 1:
        raise RefusedError(f"the peer's certificate must name one node, but names {len(names)}")
    return names[0]
