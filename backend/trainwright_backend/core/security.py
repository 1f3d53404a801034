"""Secrets at rest: the database holds keyed hashes only, so that a copy of it lets nobody in.

Session tokens, API keys, one-time links and node tokens are long random strings, which need no slow hash; keying it
with the installation's secret makes a stolen hash useless elsewhere, and the purpose keeps one kind of token from
passing for another.
"""

import hashlib
import hmac
import secrets

from pydantic import SecretStr

TOKEN_BYTES = 24
"""192 random bits."""


def new_token() -> str:
    """192 random bits as 32 URL-safe characters."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def keyed_hash(secret_key: SecretStr, purpose: str, token: str) -> str:
    """HMAC-SHA-256 of ``token``, 64 hex digits; equal tokens of different purposes have different hashes."""
    message = f"{purpose}\0{token}".encode()
    return hmac.new(secret_key.get_secret_value().encode(), message, hashlib.sha256).hexdigest()
