"""Dask nodes that answer nobody but each other and the flow: a scheduler runs anyone's code.

All traffic is TLS with one key that lives in the memory of these processes. Dask's HTTP servers
(dashboard, metrics, tasks with their arguments) would ask for no key: there are none.
"""

from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from distributed import Scheduler, Security, Worker

__all__ = ["ClosedScheduler", "ClosedWorker", "new_security"]

_SINCE, _UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


class _WithoutHttp:
    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Start none."""


class ClosedScheduler(_WithoutHttp, Scheduler):
    """A scheduler without an HTTP server."""


class ClosedWorker(_WithoutHttp, Worker):
    """A worker without an HTTP server."""


def new_security() -> Security:
    """Return a key of its own for one cluster; who has it is let in, nobody else.

    Unlike `Security.temporary`'s, it is valid whatever the clock says: workers come back hours
    later, and the clock may have been set meanwhile.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "prefect-tune")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(_SINCE)
        .not_valid_after(_UNTIL)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(Encoding.PEM).decode()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    certificates = {f"tls_{role}_cert": public for role in ("client", "scheduler", "worker")}
    keys = {f"tls_{role}_key": private for role in ("client", "scheduler", "worker")}
    return Security(require_encryption=True, tls_ca_file=public, **certificates, **keys)
