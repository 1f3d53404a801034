"""The file `.env` of an installation with docker-compose.yml: its secrets, and the addresses that only the operator knows."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from trainwright_backend.core import oidc_settings
from trainwright_backend.core.settings import MIN_SECRET_LENGTH, describe_problems, settings_from

HEADER = """\
# Settings of docker-compose.yml, which refuses to start without them. Keep this file secret, and keep a copy of it.
"""
SECRETS = {
    "TRAINWRIGHT_SECRET_KEY": "Signs links, and is the key of the hashes of sessions and API keys. Never change it.",
    "POSTGRES_PASSWORD": "",
    "HINTS_PASSWORD": "Two brokers, so that nodes, which know the first password, cannot queue work for the backend.",
    "TASKS_PASSWORD": "",
    "TRAINWRIGHT_S3_SECRET_KEY": "The store of objects.",
}
"""Each secret, with the comment above it in the file."""

S3_ACCESS_KEY = "trainwright"
S3_PORT = 9443
"""The port of the proxy behind which the store is."""


class EnvFileError(Exception):
    """The file cannot be written; the message says why."""


def write_env_file(
    file: Path, public_url: str, hints_host: str | None, environment: Mapping[str, str]
) -> None:
    """Write new random secrets and these addresses to a file that only its owner can read.

    Args:
        public_url: at which users and nodes open the platform; https.
        hints_host: at which nodes reach the broker of hints; the host of ``public_url`` when None.
        environment: the variables of this process. Settings of the identity provider among them are written too.

    Raises:
        EnvFileError: an address or a setting of the provider is not usable, or the file exists: its secrets must not be lost.
    """
    host = _checked_host(public_url)
    if hints_host is not None and (
        not hints_host or not all(part.isalnum() or part in ".-:[]" for part in hints_host)
    ):
        raise EnvFileError(f"{hints_host!r} is not a host name. Write it without scheme, port and path.")
    provider = _provider_lines(environment)
    lines = [HEADER]
    for name, purpose in SECRETS.items():
        lines += [f"\n# {purpose}" if purpose else "", f"{name}={secrets.token_hex(32)}"]
    lines += [
        f"TRAINWRIGHT_S3_ACCESS_KEY={S3_ACCESS_KEY}",
        "\n# The address of the API for people and nodes, the host for which the proxy gets a certificate, the address",
        "# of the store for people and nodes, and the host name of the hints broker for nodes.",
        f"TRAINWRIGHT_PUBLIC_URL={public_url.rstrip('/')}",
        f"PROXY_HOST={host}",
        f"TRAINWRIGHT_S3_PUBLIC_ENDPOINT=https://{host}:{S3_PORT}",
        f"HINTS_HOST={hints_host or host}",
        *provider,
    ]
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise EnvFileError(
            f"{file} exists. Its secrets would be lost: nobody could sign in, and the database would not open. Name another file."
        ) from None
    with os.fdopen(descriptor, "w") as out:
        out.write("\n".join(lines) + "\n")


def _checked_host(public_url: str) -> str:
    parts = urlsplit(public_url)
    try:
        is_address = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        is_address = False
    if not is_address or parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise EnvFileError(
            f"{public_url!r} is not the address of a server. Write it as in https://train.example.org"
        )
    assert parts.hostname is not None
    if parts.scheme == "http":
        raise EnvFileError(
            f"{public_url!r} is plain http, over which passwords can be read. Use https: the proxy of docker-compose.yml "
            "terminates TLS."
        )
    return f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname


def _provider_lines(environment: Mapping[str, str]) -> list[str]:
    """The settings of the identity provider, in the quotes of such files, if they are complete."""
    given = {name: value for name, value in environment.items() if name.startswith(oidc_settings.PREFIX)}
    try:
        settings_from(given | {"TRAINWRIGHT_SECRET_KEY": "-" * MIN_SECRET_LENGTH})
    except ValidationError as error:
        raise EnvFileError(describe_problems(error)) from None
    for name, value in given.items():
        if "'" in value or "\n" in value:
            raise EnvFileError(f"{name} has a quote or a line break, which this file cannot contain.")
    lines = [f"{name}='{value}'" for name, value in sorted(given.items()) if value]
    return ["\n# The identity provider with which people can sign in.", *lines] if lines else []
