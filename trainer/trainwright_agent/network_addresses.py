"""The addresses at which the other nodes of a run reach this one."""

from __future__ import annotations

import fcntl
import socket
import struct
from urllib.parse import urlsplit

_SIOCGIFADDR = 0x8915
"""Linux: the IPv4 address of a network interface."""


def address_towards(api_url: str) -> str | None:
    """The IPv4 address of this machine on its route to the server; None if there is no route.

    Sends nothing: connecting a UDP socket only chooses a route.
    """
    parts = urlsplit(api_url)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.hostname or "", parts.port or 443))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def interface_of(address: str) -> str | None:
    """Name of the network interface with the IPv4 ``address``, which may be given as a host name; None if there is
    none."""
    try:
        wanted = socket.inet_aton(socket.gethostbyname(address))
    except OSError:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # an interface without an address
                continue
            if reply[20:24] == wanted:
                return name
    return None


def free_port(address: str) -> int:
    """A TCP port that nothing on ``address`` uses right now."""
    with socket.create_server((address, 0)) as server:
        port: int = server.getsockname()[1]
        return port
