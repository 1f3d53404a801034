"""Removing secrets from text that leaves the installation.

Secrets that the configuration knows are replaced wherever they occur, also percent-encoded or escaped as in JSON. Others, such as
keys, links and node tokens, are stored only as hashes, so they are recognized by their shape. A name that looks random is
replaced too, as are the paths of addresses at other hosts, which are the secrets of many webhooks, and the addresses of machines
on networks.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from pydantic import SecretStr

from trainwright_backend.core.settings import Settings

MASK = "***"
MIN_VALUE_LENGTH = 4
"""Shorter values occur by chance everywhere. In addresses they are replaced by their place."""

MIN_VARIABLE_LENGTH = 8
"""The shortest value that is masked in an environment variable whose name only sounds like a secret."""

_SECRET_NAME = re.compile(r"(SECRET|PASSWORD|PASSWD|TOKEN|CREDENTIAL|PRIVATE|_KEY$)", re.IGNORECASE)

_FIELD = (
    r"(?i)((?:password|passwd|secret|token|api_?key|secret_?key|access_?key|authorization|cookie)"
    r"\\?[\"']?\s*[:=]\s*)"
)
_SHAPES = (
    # Credentials in an address, and parameters of one.
    (re.compile(r"(://)[^/\s\"'@]*@"), rf"\1{MASK}@"),
    (
        re.compile(r"(?i)([?&](?:x-amz-[a-z-]+|[\w-]*(?:token|signature|secret|password|key))=)[^&\s\"']+"),
        rf"\1{MASK}",
    ),
    (re.compile(r"(/(?:link|blobs)/)[^\s\"'/?#]+"), rf"\1{MASK}"),
    # Headers and fields, quoted or not.
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}"), rf"\1\2{MASK}"),
    (re.compile(_FIELD + r"(\\?[\"'])(?:\\.|.)*?\2"), rf"\1\2{MASK}\2"),
    (re.compile(_FIELD + r"(?!\*\*\*|bearer|basic)[^\s\"'\\,;&{\[]+"), rf"\1{MASK}"),
    (re.compile(r"(__Host-[\w-]+=)[^;\s\"']+"), rf"\1{MASK}"),
    # Signed content (JSON in base64url, then its signature), API keys, secrets of webhooks; 192 random bits or more in letters of both cases.
    (re.compile(r"\beyJ[\w-]+(\.[\w-]+)+"), MASK),
    (re.compile(r"\btw_[0-9a-f]{8}_[\w-]+"), f"tw_{MASK}"),
    (re.compile(r"\bwhsec_[\w+/=-]+"), f"whsec_{MASK}"),
    (re.compile(r"(?<![\w-])(?=[\w-]*[A-Z])(?=[\w-]*[a-z])[\w-]{32,}", re.ASCII), MASK),
    # People.
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(\.[\w-]+)+"), f"{MASK}@{MASK}"),
)


_ADDRESS = re.compile(r"(?i)(https?://(?:[^/\s\"'@]*@)?)([^/?#\s\"'<>\\]+)([/?#][^\s\"'<>\\]+)")
"""An address of a page: up to its host, the host with its port, and the rest."""

_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:])")


class Masker:
    """Replaces secrets in text.

    Args:
        secrets: values that must not remain.
        own_hosts: hosts, with ports, of addresses whose paths may remain.
    """

    def __init__(self, secrets: Iterable[str], own_hosts: Collection[str] = ()) -> None:
        self._own_hosts = own_hosts
        forms = {form for secret in secrets if len(secret) >= MIN_VALUE_LENGTH for form in _forms(secret)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        """``text`` without secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        for shape, mask in _SHAPES:
            text = shape.sub(mask, text)
        text = _ADDRESS.sub(self._address, text)
        return _IPV6.sub(_ip_address, _IPV4.sub(_ip_address, text))

    def _address(self, found: re.Match[str]) -> str:
        start, host, path = found.groups()
        return found[0] if host.lower() in self._own_hosts or path == "/" else f"{start}{host}/{MASK}"

    def data(self, value: Any) -> Any:
        """A value of JSON, whose keys and other texts are without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.data(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        return value


def secret_values(settings: Settings, environment: Mapping[str, str] | None = None) -> set[str]:
    """The secrets of the settings, the passwords in their addresses, and variables of the environment named like secrets.

    Args:
        environment: this process's when None.
    """
    found: set[str] = set()
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
            found.add(value)
        if isinstance(value, str):
            found.update(_credentials_of(value))
    for name, value in (os.environ if environment is None else environment).items():
        if _SECRET_NAME.search(name) and len(value) >= MIN_VARIABLE_LENGTH:
            found.add(value)
    return found


def own_hosts(settings: Settings) -> set[str]:
    """The hosts, with ports, whose addresses have no secrets in their paths except those that are recognized by their shape."""
    addresses = (settings.public_url, settings.s3_endpoint, settings.s3_public_endpoint)
    return {
        urlsplit(address).netloc.rpartition("@")[2].lower() for address in addresses if address is not None
    }


def without_credentials(address: str) -> str:
    """Scheme, host, port and path of an address."""
    scheme, _, rest = address.partition("://")
    location, slash, path = rest.partition("/")
    return f"{scheme}://{location.rpartition('@')[2]}{slash}{re.split('[?#]', path)[0]}"


def _ip_address(found: re.Match[str]) -> str:
    """The mask of a machine's address. The address of this machine, and text that is not an address, remain."""
    try:
        address = ip_address(found[0])
    except ValueError:
        return found[0]
    return found[0] if address.is_loopback or address.is_unspecified else MASK


def _credentials_of(address: str) -> Iterator[str]:
    """The password of an address, and secrets among its parameters."""
    if "://" not in address:
        return
    before = address.partition("://")[2].partition("/")[0].rpartition("@")[0]
    if password := before.partition(":")[2]:
        yield from (password, unquote(password))
    for name, value in parse_qsl(urlsplit(address.replace("[", "").replace("]", "")).query):
        if _SECRET_NAME.search(name):
            yield value


def _forms(secret: str) -> set[str]:
    """A secret as texts write it: itself, percent-encoded, escaped in Python, in JSON, and in JSON in JSON."""
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    twice = {json.dumps(form)[1:-1] for form in escaped}
    return {secret, quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1], *escaped, *twice}
