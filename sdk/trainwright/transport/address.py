"""The address of the server."""

from __future__ import annotations

import httpx

EXAMPLE = "Write it as http://127.0.0.1:8000 or https://train.example."


def checked_address(server: str) -> str:
    """The address without a slash at its end.

    Raises:
        ValueError: it is not an address of HTTP.
    """
    try:
        url = httpx.URL(server)
    except httpx.InvalidURL as error:
        raise ValueError(f"{server!r} is not the address of a server: {error}. {EXAMPLE}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(
            f"{server!r} is not the address of a server: it needs http:// or https://, and a host. {EXAMPLE}"
        )
    return server.rstrip("/")
