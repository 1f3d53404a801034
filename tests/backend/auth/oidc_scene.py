"""Scenes with an identity provider: settings, sign-ins of browsers at it, and who they then are."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from sqlalchemy import func, select

from tests.backend.auth.forging_provider import ForgingProvider, forging_provider
from tests.backend.conftest import Site
from tests.certified_provider import CLIENT_ID, CLIENT_SECRET
from trainwright.contracts.api.people import Role
from trainwright_backend.auth.tables import Account
from trainwright_backend.core.settings import Settings

ADA = "ada@acme.example"
GRACE = {
    "sub": "grace-1",
    "email": "grace@lab.example",
    "email_verified": True,
    "name": "Grace",
    "groups": ["lab"],
}
GROUPS = {"lab": {"acme": Role.EDITOR}, "leads": {"acme": Role.OWNER}, "gone": {"no-such-team": Role.OWNER}}
REDIRECT = "http://localhost/sign-in"


@pytest.fixture
def provider() -> Iterator[ForgingProvider]:
    with forging_provider() as found:
        found.claims, found.user_info = dict(GRACE), {"sub": GRACE["sub"]}
        yield found


@pytest.fixture
def settings(settings: Settings, provider: ForgingProvider) -> Settings:
    return with_provider(settings, provider.issuer)


def with_provider(settings: Settings, issuer: str, **changes: Any) -> Settings:
    given = {
        "oidc_issuer": issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": SecretStr(CLIENT_SECRET),
        "oidc_name": "Lab login",
        "oidc_groups": GROUPS,
    }
    return settings.model_copy(update=given | changes)


def change(site: Site, **changes: Any) -> None:
    """Change settings of the running server."""
    site.app.state.settings = site.app.state.settings.model_copy(update=changes)


def start(browser: TestClient, next_page: str = "/acme") -> str:
    response = browser.post("/api/v1/auth/oidc/start", json={"next": next_page})
    assert response.status_code == 200, response.text
    return str(response.json()["url"])


def query_of(url: str) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}


def finish(browser: TestClient, **response: str | None) -> tuple[int, str]:
    found = browser.post("/api/v1/auth/oidc/finish", json=response)
    return found.status_code, found.json().get("code", "")


def finish_with(browser: TestClient, returned: dict[str, str]) -> tuple[int, str]:
    """Send what a provider added to the redirect address."""
    code, error = returned.get("code"), returned.get("error")
    return finish(
        browser, state=returned["state"], authorization_code=code, error=error, issuer=returned.get("iss")
    )


def sign_in(browser: TestClient, provider: ForgingProvider, **claims: Any) -> tuple[int, str]:
    """Sign in at the forging provider, which adds the right nonce unless the claims have one."""
    query = query_of(start(browser))
    provider.claims = GRACE | {"nonce": query["nonce"]} | claims
    return finish(browser, state=query["state"], authorization_code="any")


def me(browser: TestClient) -> dict[str, Any]:
    response = browser.get("/api/v1/me")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def roles(browser: TestClient) -> dict[str, str]:
    return {team["slug"]: team["role"] for team in me(browser)["teams"]}


def accounts(site: Site) -> int:
    with site.app.state.database.read() as session:
        return session.scalar(select(func.count()).select_from(Account)) or 0
