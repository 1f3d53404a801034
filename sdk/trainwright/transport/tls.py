"""Which certificate authorities the client trusts."""

from __future__ import annotations

import os
import ssl

import httpx
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
    return context


def is_untrusted(error: httpx.TransportError) -> bool:
    """Whether the server's certificate was refused. Another attempt would not help."""
    return "CERTIFICATE_VERIFY_FAILED" in str(error)
