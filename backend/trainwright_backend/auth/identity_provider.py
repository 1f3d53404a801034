"""The identity provider: its discovery document and keys, which are cached, its token endpoint, and the proof in an ID token.

The addresses in the discovery document are the provider's choice. So each must be https (or on this machine, if the issuer is),
only public addresses and the networks of the settings are reached, redirects are not followed, and responses are bounded in size
and time. ID tokens are verified by joserfc with public keys only: neither `none` nor a shared secret is among the algorithms.
"""

import base64
import threading
import time
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import structlog
from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from pydantic import BaseModel, ValidationError

from trainwright_backend.core.errors import Busy, Unauthorized
from trainwright_backend.core.oidc_settings import is_protected
from trainwright_backend.core.public_http import HttpResponse, failure_sentence, fetch
from trainwright_backend.core.settings import Settings

ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)
PUBLIC_KEY_TYPES = ("RSA", "EC", "OKP")
CACHE_SECONDS = 3600.0
"""How long a discovery document and keys are used."""
KEYS_SECONDS = 60.0
"""Keys are requested again for a token that they do not fit, at most this often: providers replace them at any time."""
CLOCK_SKEW_SECONDS = 60
LOGGED_CHARACTERS = 300

Model = TypeVar("Model", bound=BaseModel)

log = structlog.get_logger()


class Discovery(BaseModel):
    """What is used of a provider's discovery document."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: list[str] = ["client_secret_basic"]
    authorization_response_iss_parameter_supported: bool = False


class Tokens(BaseModel):
    """The response of the token endpoint."""

    id_token: str
    access_token: str | None = None


class PublishedKeys(BaseModel):
    keys: list[dict[str, Any]]


class ProviderError(BaseModel):
    """A refusal of the token endpoint (RFC 6749, section 5.2)."""

    error: str


class Claims(BaseModel, extra="allow"):
    """Claims as the userinfo endpoint sends them."""

    sub: str


class IdentityProvider:
    """The provider of the settings, which have an issuer. Safe to share among threads."""

    def __init__(self, settings: Settings) -> None:
        assert settings.oidc_issuer and settings.oidc_client_id and settings.oidc_client_secret
        self.issuer, self.client_id = settings.oidc_issuer, settings.oidc_client_id
        self.label = settings.oidc_label
        self._secret = settings.oidc_client_secret
        self._networks = settings.allowed_oidc_networks
        self._lock = threading.Lock()
        self._discovered: tuple[float, Discovery] | None = None
        self._keys: tuple[float, KeySet] | None = None

    def discovery(self) -> Discovery:
        """The discovery document.

        Raises:
            Busy: it cannot be read, or does not describe the issuer of the settings.
        """
        with self._lock:
            if self._discovered is None or time.monotonic() - self._discovered[0] > CACHE_SECONDS:
                self._discovered = (time.monotonic(), self._discover())
            return self._discovered[1]

    def exchange(self, code: str, verifier: str, redirect_uri: str) -> Tokens:
        """The tokens for an authorization code, which is valid once.

        Raises:
            Unauthorized: the provider refuses the code.
            Busy: it refuses this installation, or does not respond.
        """
        found = self.discovery()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": redirect_uri,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        secret = self._secret.get_secret_value()
        if "client_secret_basic" in found.token_endpoint_auth_methods_supported:
            pair = f"{quote(self.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self.client_id, "client_secret": secret}
        response = self._request(found.token_endpoint, headers, urlencode(form).encode())
        if response.status != 200:
            raise self._refusal(response)
        return self._parsed(Tokens, response, "its token endpoint")

    def user_info(self, access_token: str) -> dict[str, Any]:
        """Claims of the person, as some providers leave them out of the ID token; empty if there is no such endpoint."""
        address = self.discovery().userinfo_endpoint
        if address is None:
            return {}
        response = self._request(
            address, {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
        )
        return self._parsed(Claims, response, "its userinfo endpoint").model_dump()

    def verify(self, id_token: str, nonce: str) -> dict[str, Any]:
        """The claims of an ID token that this provider issued to this installation for the sign-in with ``nonce``.

        Raises:
            Unauthorized: it did not.
        """
        try:
            claims = self._decode(id_token).claims
            jwt.JWTClaimsRegistry(
                leeway=CLOCK_SKEW_SECONDS,
                iss={"essential": True, "value": self.issuer},
                aud={"essential": True, "value": self.client_id},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            ).validate(claims)
        except (JoseError, ValueError) as error:
            raise self.unproven(str(error)) from None
        audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if claims.get("azp", self.client_id) != self.client_id or (
            len(audiences) > 1 and "azp" not in claims
        ):
            raise self.unproven("the token is for another application (azp)")
        return claims

    def unproven(self, reason: str) -> Unauthorized:
        """The error for a response that proves nothing. Its reason is logged."""
        log.warning("a sign-in was refused", provider=self.issuer, reason=reason[:LOGGED_CHARACTERS])
        detail = (
            f"{self.label} sent a response that this server cannot accept. Try again. If it happens again, tell the operator: the "
            "server's log has the reason."
        )
        return Unauthorized(detail, code="sign_in_not_proven")

    def _decode(self, id_token: str) -> jwt.Token:
        try:
            return jwt.decode(id_token, self._current_keys(), algorithms=ALGORITHMS)
        except (InvalidKeyIdError, BadSignatureError):
            return jwt.decode(id_token, self._current_keys(KEYS_SECONDS), algorithms=ALGORITHMS)

    def _current_keys(self, oldest_seconds: float = CACHE_SECONDS) -> KeySet:
        address = self.discovery().jwks_uri
        with self._lock:
            if self._keys is None or time.monotonic() - self._keys[0] > oldest_seconds:
                published = self._parsed(PublishedKeys, self._request(address, {}), "its keys").keys
                usable = [
                    key for key in published if key.get("kty") in PUBLIC_KEY_TYPES and key.get("use") != "enc"
                ]
                self._keys = (time.monotonic(), KeySet.import_key_set({"keys": usable}))
            return self._keys[1]

    def _discover(self) -> Discovery:
        address = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = self._parsed(Discovery, self._request(address, {}), "its discovery document")
        if found.issuer != self.issuer:
            raise self._unusable(f"its discovery document is of the issuer {found.issuer!r}")
        endpoints = (
            found.authorization_endpoint,
            found.token_endpoint,
            found.jwks_uri,
            found.userinfo_endpoint,
        )
        for endpoint in endpoints:
            if endpoint is not None and not is_protected(endpoint.partition("?")[0]):
                raise self._unusable(f"{endpoint!r} in its discovery document is not https")
        return found

    def _request(self, address: str, headers: dict[str, str], body: bytes | None = None) -> HttpResponse:
        try:
            return fetch(address, headers, self._networks, body)
        except (OSError, HTTPException) as error:
            raise self._unusable(failure_sentence(error)) from None

    def _parsed(self, model: type[Model], response: HttpResponse, part: str) -> Model:
        if response.status != 200:
            raise self._unusable(f"{part} answers with status {response.status}")
        try:
            return model.model_validate_json(response.body)
        except ValidationError as error:
            where = ", ".join(str(item["loc"][0]) for item in error.errors() if item["loc"]) or "JSON"
            raise self._unusable(f"{part} is not valid: {where}") from None

    def _refusal(self, response: HttpResponse) -> Exception:
        try:
            code = ProviderError.model_validate_json(response.body).error
        except ValidationError:
            return self._unusable(f"its token endpoint answers with status {response.status}")
        if code != "invalid_grant":
            return self._unusable(f"its token endpoint refuses this installation: {code!r}")
        log.info("a sign-in was refused", provider=self.issuer, reason=code)
        return Unauthorized(
            f"{self.label} says that this sign-in has expired or was used before. Try again.",
            code="sign_in_expired",
        )

    def _unusable(self, reason: str) -> Busy:
        log.warning(
            "the identity provider cannot be used", provider=self.issuer, reason=reason[:LOGGED_CHARACTERS]
        )
        detail = (
            f"Sign-in with {self.label} does not work at the moment. Try again in a minute, or sign in with your password. If it "
            "persists, tell the operator: the server's log has the reason."
        )
        return Busy("provider_unavailable", detail, retry_after_seconds=30)
