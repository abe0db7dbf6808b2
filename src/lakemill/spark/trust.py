"""The machine's certificate authorities, in the form that Java reads.

The Java of a wheel knows only the authorities that were in it when it was built, so that behind a company's proxy, or
with a private S3 server, it trusts less than Python and DuckDB on the same machine do. `spark.java` gives it this file.
The format (JKS) is old and small enough to write by hand; certificates are no secret, and its password protects none.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import struct
from pathlib import Path

PASSWORD = "changeit"  # noqa: S105  what every Java expects; it guards the file's integrity, not its content
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def authorities() -> Path | None:
    """The file of authorities that Python trusts here (SSL_CERT_FILE, or OpenSSL's own), if there is one."""
    file = ssl.get_default_verify_paths().cafile
    return Path(file) if file else None


def key_store(pem: str) -> bytes:
    """The certificates of a PEM file as a Java key store."""
    certificates = [ssl.PEM_cert_to_DER_cert(block) for block in _PEM.findall(pem)]
    parts = [struct.pack(">III", 0xFEEDFEED, 2, len(certificates))]
    for number, certificate in enumerate(certificates):
        trusted = 2
        parts += [struct.pack(">I", trusted), _text(f"authority-{number}"), struct.pack(">Q", 0), _text("X.509")]
        parts += [struct.pack(">I", len(certificate)), certificate]
    body = b"".join(parts)
    seal = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body)  # noqa: S324  the format's own
    return body + seal.digest()


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode("ascii")
