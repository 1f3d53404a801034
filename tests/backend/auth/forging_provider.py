"""An identity provider on loopback that answers as a test wants: with forged tokens, wrong documents, slowly or not at all."""

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey

Claims = dict[str, Any]


def new_key() -> ECKey:
    return ECKey.generate_key("P-256", {"kid": "one"})


@dataclass
class ForgingProvider:
    """The provider, whose fields a test changes."""

    issuer: str = ""
    claims: Claims = field(default_factory=dict)
    """Claims of the next ID token, besides issuer, audience and times."""
    document: dict[str, Any] = field(default_factory=dict)
    """Changes to the discovery document."""
    user_info: Claims = field(default_factory=dict)
    sign: Callable[["ForgingProvider", Claims], str] | None = None
    """Makes the ID token instead of the right key."""
    key: ECKey = field(default_factory=new_key)
    requests: list[str] = field(default_factory=list)
    """Paths that were requested."""

    def id_token(self) -> str:
        given = {
            "iss": self.issuer,
            "aud": "trainwright",
            "iat": int(time.time()),
            "exp": int(time.time()) + 300,
        }
        claims = {key: value for key, value in (given | self.claims).items() if value is not None}
        return signed(self.key, claims) if self.sign is None else self.sign(self, claims)

    def respond(self, path: str) -> dict[str, Any]:
        self.requests.append(path)
        if path == "/.well-known/openid-configuration":
            own = {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                "jwks_uri": f"{self.issuer}/keys",
            }
            return own | self.document
        if path == "/keys":
            decryption = ECKey.generate_key("P-256", {"kid": "two", "use": "enc"}).as_dict(private=False)
            return {"keys": [self.key.as_dict(private=False), decryption, {"kty": "AKP", "kid": "three"}]}
        if path == "/token":
            return {"id_token": self.id_token(), "access_token": "at", "token_type": "Bearer"}
        return self.user_info


def signed(key: ECKey, claims: Claims) -> str:
    return jwt.encode({"alg": "ES256", "kid": "one"}, claims, key)


def unsigned(provider: ForgingProvider, claims: Claims) -> str:
    """A token with the algorithm `none`."""
    return f"{_content('none', claims)}."


def signed_with_public_key(provider: ForgingProvider, claims: Claims) -> str:
    """A token whose signature takes the published key for a shared secret. The library refuses to make one."""
    content = _content("HS256", claims)
    signature = hmac.new(provider.key.as_pem(private=False), content.encode(), "sha256").digest()
    return f"{content}.{_base64(signature)}"


def _content(algorithm: str, claims: Claims) -> str:
    header = {"alg": algorithm, "kid": "one"}
    return ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@contextmanager
def forging_provider() -> Iterator[ForgingProvider]:
    """A running provider."""
    found = ForgingProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer()

        def _answer(self) -> None:
            body = json.dumps(found.respond(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.issuer = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
