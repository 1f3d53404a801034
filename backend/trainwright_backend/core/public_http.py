"""Requests to an address that others chose, without letting it reach the server's own network.

The host is resolved once, its addresses are checked, and the connection is made to exactly the checked address: a name that
resolves differently the second time gains nothing. Redirects are not followed, proxies not used, and of the response at most a
limited number of bytes is read. A response that arrives slowly is given up, so one address cannot delay the requests to others.
"""

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 10.0
"""Limit for each step of a request: the connection, the handshake of TLS, and the response."""
MAX_BYTES = 1 << 20
"""The most bytes of a response that are read."""

Network = IPv4Network | IPv6Network
ResolvedAddress = tuple[int, int, int, str, tuple[Any, ...]]
"""An entry of `socket.getaddrinfo`."""
NAT64 = ip_network("64:ff9b::/96")
"""IPv6 addresses that gateways translate to the IPv4 address in their last 32 bits (RFC 6052, section 2.1)."""


class RefusedAddressError(OSError):
    """The host has no address that may be reached."""


@dataclass(frozen=True)
class HttpResponse:
    """The response to a request."""

    status: int
    body: bytes


def post(url: str, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network]) -> int:
    """POST ``body`` and return the status of the response, whose body is not read.

    Args:
        url: http or https.
        body: sent as it is.
        headers: besides Host and Content-Length.
        allowed: networks that may be reached besides public addresses.

    Raises:
        OSError: the host cannot be reached, or must not be.
        HTTPException: the response is not HTTP.
    """
    with _response_to("POST", url, body, headers, allowed) as response:
        return response.status


def fetch(
    url: str, headers: Mapping[str, str], allowed: Sequence[Network], body: bytes | None = None
) -> HttpResponse:
    """As `post`, or GET without a body, with the response's body.

    Raises:
        OSError: also if it has more than `MAX_BYTES`.
    """
    method = "GET" if body is None else "POST"
    with _response_to(method, url, body, headers, allowed) as response:
        found = response.read(MAX_BYTES + 1)
        if len(found) > MAX_BYTES:
            raise OSError(f"the response has more than {MAX_BYTES:,} bytes")
        return HttpResponse(response.status, found)


@contextmanager
def _response_to(
    method: str, url: str, body: bytes | None, headers: Mapping[str, str], allowed: Sequence[Network]
) -> Iterator[HTTPResponse]:
    """The response to a request, which must be read within the timeout."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    connection = HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    if secure:
        connection = HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS)
    plain = _connect(host, port, allowed)
    try:
        connection.sock = _encrypted(plain, host) if secure else plain
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        deadline = threading.Timer(
            TIMEOUT_SECONDS, socket.socket.shutdown, (connection.sock, socket.SHUT_RDWR)
        )
        deadline.start()
        try:
            connection.request(method, target, body, dict(headers))
            yield connection.getresponse()
        except (OSError, HTTPException) as error:
            if deadline.is_alive():
                raise
            raise TimeoutError from error
        finally:
            deadline.cancel()
            deadline.join()
    finally:
        connection.close()
        plain.close()


def failure_sentence(failure: Exception) -> str:
    """Why `post` failed, for people."""
    if isinstance(failure, socket.gaierror):
        return "The host's name is unknown."
    if isinstance(failure, ConnectionRefusedError):
        return "The host refuses connections to this port."
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"The host's certificate is not valid: {failure.verify_message}."
    if isinstance(failure, ssl.SSLError):
        return "The host does not speak TLS on this port."
    if isinstance(failure, TimeoutError):
        return f"The host did not respond within {TIMEOUT_SECONDS:g} s."
    if isinstance(failure, HTTPException):
        return "The response is not HTTP."
    text = str(failure) or type(failure).__name__
    return f"{text[0].upper()}{text[1:]}."


def is_reachable(address: str, allowed: Sequence[Network]) -> bool:
    """Whether an IP address is public or in one of the allowed networks."""
    found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        found = _embedded(found) or found
    public = found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)
    return public or any(found in network for network in allowed)


def is_refused_literal(url: str, allowed: Sequence[Network]) -> bool:
    """Whether the host of ``url`` is an IP address, in any notation, that `post` would refuse. Names are not resolved."""
    host = urlsplit(url).hostname or ""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:  # a name
        return False
    return not _permitted(found, allowed)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to an IPv6 address reach in the end, if it is one of those."""
    translated = IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else None
    return address.ipv4_mapped or address.sixtofour or translated


def _connect(host: str, port: int, allowed: Sequence[Network]) -> socket.socket:
    permitted = _permitted(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), allowed)
    if not permitted:
        raise RefusedAddressError(f"{host} has no public address")
    return socket.create_connection((permitted[0], port), timeout=TIMEOUT_SECONDS)


def _permitted(found: Sequence[ResolvedAddress], allowed: Sequence[Network]) -> list[str]:
    return [address for entry in found if is_reachable(address := str(entry[4][0]), allowed)]


def _encrypted(plain: socket.socket, host: str) -> ssl.SSLSocket:
    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


__all__ = [
    "HTTPException",
    "RefusedAddressError",
    "failure_sentence",
    "fetch",
    "is_reachable",
    "is_refused_literal",
    "post",
]
