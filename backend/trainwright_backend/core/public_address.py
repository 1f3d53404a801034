"""The address at the start of links and commands for other people and machines.

It is the configured public address. If that is local to this machine, as it is until an operator sets another one, it
is the address by which the request reached the server. If that is local too, links and commands with it come with a
warning.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from trainwright_backend.core.settings import Settings


def reachable_address(settings: Settings, requested: str | None) -> str:
    """The address, without a final slash.

    Args:
        requested: scheme and host of the request; None outside one.
    """
    public = settings.public_url.rstrip("/")
    return requested if requested is not None and is_local(public) and not is_local(requested) else public


def is_local(url: str) -> bool:
    """Whether only programs on the server's own machine reach ``url``."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def local_warning(url: str) -> str | None:
    """The warning for the reader of a link or command with ``url``; None if other machines reach it."""
    if not is_local(url):
        return None
    return (
        f"This works only on the server's own machine, since it starts with {url}. Open Trainwright by the address that "
        "others use, or set TRAINWRIGHT_PUBLIC_URL, and create a new one."
    )
