"""Secrets at rest: the database stores only keyed hashes, so a copy of it gives nobody access.

Session tokens, API keys, one-time links and node tokens are long random strings, which need no slow hash. The key is
the installation's secret, so a stolen hash is useless elsewhere; the purpose prevents one kind of token from being used
as another.
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
    """HMAC-SHA-256 of ``token``, 64 hex digits. The same token has different hashes for different purposes."""
    message = f"{purpose}\0{token}".encode()
    return hmac.new(secret_key.get_secret_value().encode(), message, hashlib.sha256).hexdigest()
