"""Which certificate authorities the client trusts."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import truststore


def tls_context() -> ssl.SSLContext:
    """Trusts the authorities of the operating system, and those in the file that ``SSL_CERT_FILE`` names.

    Raises:
        ValueError: the file cannot be read, or has no certificate.
    """
    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    file = os.environ.get("SSL_CERT_FILE")
    if file:
        try:
            context.load_verify_locations(file)
        except OSError as error:
            raise ValueError(
                f"SSL_CERT_FILE names {file}, which has no readable certificates: {error}."
            ) from error
        own = ssl.get_default_verify_paths().openssl_cafile  # OpenSSL would read only the file named instead
        if Path(own).is_file():
            context.load_verify_locations(own)
    return context


def is_untrusted(error: BaseException) -> bool:
    """Whether the server's certificate was refused. Another attempt would not help."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None
