"""The middleware around every request, and the public routes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx import ASGITransport, AsyncClient, Response

from trainwright_backend import openapi
from trainwright_backend.api import body_limits
from trainwright_backend.core.message_queue import Enqueuer
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.teams import one_time_links


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


def test_health_answers_with_the_version(anonymous: TestClient) -> None:
    assert anonymous.get("/api/v1/health").json()["status"] == "ok"


def test_health_names_a_broker_that_does_not_respond(
    app: FastAPI, anonymous: TestClient, tmp_path: Path
) -> None:
    gone = f"redis+socket://{tmp_path}/none.sock?virtual_host=0"
    urls = {"tasks_url": gone, "hints_url": gone}
    app.state.enqueuer = Enqueuer(app.state.settings.model_copy(update=urls))
    health = anonymous.get("/api/v1/health").json()
    assert (health["status"], [problem["part"] for problem in health["problems"]]) == ("degraded", ["broker"])
    assert "New work starts some seconds late" in health["problems"][0]["message"]


def test_the_spec_s_schema_has_descriptions(anonymous: TestClient) -> None:
    response = anonymous.get("/api/v1/spec").json()
    assert response["run_spec"]["properties"]["seed"]["description"].startswith("Seed of the initial weights")
    assert "nano" in response["presets"]


def test_every_response_has_an_id_and_the_security_headers(anonymous: TestClient) -> None:
    for path in ("/", "/api/v1/health", "/api/v1/nothing", "/api/v1/me"):
        headers = anonymous.get(path).headers
        assert len(headers["x-request-id"]) == 32
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_an_unknown_api_address_returns_a_problem_instead_of_a_page(anonymous: TestClient) -> None:
    for method in ("GET", "POST", "DELETE"):
        response = anonymous.request(method, "/api/v1/nothing")
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/health", "GET"),
        ("/me/keys", "GET, POST"),
        ("/teams/acme/runs/run_x", "DELETE, GET, PATCH"),
        ("/teams/acme/runs/validate", "POST"),
    ],
)
def test_a_wrong_method_is_405_and_names_the_right_ones(
    anonymous: TestClient, path: str, allowed: str
) -> None:
    response = anonymous.put(f"/api/v1{path}")
    assert (response.status_code, response.headers["allow"]) == (405, allowed)
    assert allowed in response.json()["detail"]


def test_an_unknown_host_is_refused(anonymous: TestClient) -> None:
    response = anonymous.get("/api/v1/health", headers={"Host": "evil.example"})
    assert (response.status_code, response.json()["code"]) == (400, "unknown_host")


def test_several_host_headers_are_refused(anonymous: TestClient) -> None:
    """A proxy may check one of them, and this server another."""
    response = anonymous.get("/api/v1/health", headers=[("Host", "localhost"), ("Host", "localhost")])
    assert (response.status_code, response.json()["code"]) == (400, "several_hosts")


def test_the_openapi_document_states_the_credentials_of_each_operation(anonymous: TestClient) -> None:
    document = anonymous.get("/api/v1/openapi.json").json()
    paths, schemes = document["paths"], document["components"]["securitySchemes"]
    person, node = [{"apiKey": []}, {"session": []}], [{"nodeToken": []}]
    assert paths["/api/v1/teams/{team}/runs"]["post"]["security"] == person
    assert paths["/api/v1/agent/heartbeat"]["post"]["security"] == node
    assert paths["/api/v1/auth/sign-in"]["post"]["security"] == []
    stated = [operation["security"] for path in paths.values() for operation in path.values()]
    assert {name for item in stated for choice in item for name in choice} == set(schemes)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 204),
        ({"Sec-Fetch-Site": "same-origin"}, 204),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:5173"}, 204),
        ({"Origin": "http://localhost"}, 204),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example", "Authorization": "Basic dXNlcjpwYXNz"}, 403),
        ({"Origin": "https://evil.example", "Authorization": "Bearer tw_key"}, 204),
    ],
)
def test_other_sites_cannot_act_with_a_cookie(
    anonymous: TestClient, headers: dict[str, str], status: int
) -> None:
    assert anonymous.post("/api/v1/auth/sign-out", headers=headers).status_code == status


def test_a_server_error_returns_500_with_the_request_s_id(app: FastAPI, anonymous: TestClient) -> None:
    app.state.static_folder = None  # simulates a programming error
    response = anonymous.get("/some-page")
    assert response.status_code == 500
    assert response.json()["code"] == "internal_error"
    assert response.json()["request_id"] in response.json()["detail"]
    assert "NoneType" not in response.text


def test_the_log_of_a_failure_has_the_route_and_not_the_address(
    capsys: pytest.CaptureFixture[str], anonymous: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(one_time_links, "link_info", fail)
    assert anonymous.get("/api/v1/auth/link/a-one-time-token").status_code == 500
    logged = capsys.readouterr()
    text = logged.out + logged.err
    assert "/auth/link/{token}" in text and "a-one-time-token" not in text


def test_a_body_that_is_too_large_is_refused_unread(anonymous: TestClient) -> None:
    def body() -> Iterator[bytes]:
        for _ in range(body_limits.STANDARD // 2**20 + 2):
            yield b" " * 2**20

    for content in (b" " * (body_limits.STANDARD + 1), body()):
        headers = {"Content-Type": "application/json"}
        response = anonymous.post("/api/v1/auth/sign-in", content=content, headers=headers)
        assert response.status_code == 413, response.text
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["code"] == "too_large"
        assert response.json()["request_id"] == response.headers["x-request-id"]


def test_a_body_that_does_not_arrive_is_refused(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardedRoute, "body_seconds", 0.05)

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    async def send() -> Response:
        async with AsyncClient(transport=ASGITransport(app), base_url="http://localhost") as client:
            headers = {"Content-Type": "application/json"}
            return await client.post("/api/v1/auth/sign-in", content=endless(), headers=headers)

    response = app.state.portal.call(send)
    assert (response.status_code, response.json()["code"]) == (408, "slow_body")


def test_only_agents_may_send_larger_bodies(anonymous: TestClient) -> None:
    content = b" " * (body_limits.STANDARD + 1)
    run = "/api/v1/agent/runs/run_x"
    for path in (f"{run}/batches", f"{run}/uploads", f"{run}/logs/a.log?attempt=1&fence=1&offset=0"):
        assert anonymous.post(path, content=content).status_code == 401, path
    for path in (f"{run}/claim", f"{run}/end", "/api/v1/agent/join", "/api/v1/teams/acme/runs"):
        assert anonymous.post(path, content=content).status_code == 413, path


def test_pages_and_files_of_the_frontend_are_served(
    app: FastAPI, anonymous: TestClient, tmp_path: Path
) -> None:
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>The pages</title>")
    (folder / "assets" / "index-B4k2mX9z.js").write_text("1")
    (folder / "service-worker.js").write_text("2")
    (tmp_path / "secret.txt").write_text("secret")
    app.state.static_folder = folder
    for path in ("/", "/acme/runs", "/sign-in"):
        assert "The pages" in anonymous.get(path).text
        assert anonymous.head(path).status_code == 200, "uptime monitors send HEAD requests"
    script = anonymous.get("/assets/index-B4k2mX9z.js")
    assert "immutable" in script.headers["cache-control"]
    worker = anonymous.get("/service-worker.js")
    assert worker.headers["cache-control"] == "no-cache", "or browsers would not notice an upgrade"
    assert worker.headers["content-type"].startswith("text/javascript")
    assert anonymous.get("/assets/gone.js").status_code == 404
    assert "secret" not in anonymous.get("/%2e%2e/secret.txt").text


def test_without_a_built_frontend_the_page_says_how_to_build_it(
    app: FastAPI, anonymous: TestClient, tmp_path: Path
) -> None:
    app.state.static_folder = tmp_path / "missing"
    assert "make frontend" in anonymous.get("/").text


@pytest.mark.slow(target="databases")
def test_the_openapi_document_is_the_same_each_time() -> None:
    assert openapi.document() == openapi.document()
    assert '"operationId": "sign_in"' in openapi.document()
