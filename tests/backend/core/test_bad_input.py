"""Malicious input is refused like any invalid input: 4xx, never 500, on both databases."""

import json
import threading
from typing import Any

import pytest

from tests.backend.conftest import PASSWORD, Site

HUGE = str(2**63)
RUN = "run_" + "a" * 26
MACHINE = {"hostname": "machine", "os": "Linux", "cores": 1, "memory_bytes": 1}


@pytest.mark.parametrize("number", ["1e999", "NaN", "-Infinity"])
def test_an_invalid_number_is_named_in_the_error(site: Site, number: str) -> None:
    content = f'{{"name": "x", "optimizer": {{"learning_rate": {number}}}}}'
    for path, status in ((f"{site.path}/runs", 422), (f"{site.path}/runs/validate", 200)):
        response = site.admin.post(path, content=content, headers={"Content-Type": "application/json"})
        assert response.status_code == status, response.text
        assert "Infinity" not in response.text and "NaN" not in response.text
        found = response.json().get("errors") or response.json()["problems"]
        assert "optimizer.learning_rate" in [problem["field"] for problem in found]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/auth/sign-in", {"email": "a\0@b", "password": PASSWORD}),
        ("/api/v1/auth/sign-in", {"email": "a\ud800@b", "password": PASSWORD}),
        ("/api/v1/auth/link", {"token": "x\0", "name": "a\0"}),
        ("/api/v1/auth/link", {"token": "\ud800"}),
        ("/api/v1/agent/join", {"token": "\ud800", "name": "node", "inventory": MACHINE}),
        ("/api/v1/agent/join", {"token": "x", "name": "node", "inventory": MACHINE | {"hostname": "\ud800"}}),
        ("/api/v1/agent/join", {"token": "x", "name": "node", "inventory": MACHINE | {"os": "a\0"}}),
        ("/api/v1/teams/acme/runs/bulk", {"runs": ["\ud800"], "action": "cancel"}),
        ("/api/v1/teams/acme/runs/bulk", {"runs": [RUN], "action": "tag", "add": ["a\0"]}),
        ("/api/v1/teams/acme/runs/bulk", {"runs": [RUN], "action": "tag", "add": ["\ud800"]}),
        ("/api/v1/teams/acme/datasets", {"name": "x", "uploads": ["\ud800"]}),
        ("/api/v1/teams/acme/uploads/preview", {"uploads": ["\ud800"]}),
        ("/api/v1/teams/acme/runs", {"name": "x", "data": {"dataset": "ds"}, "tags": ["a\0"]}),
        ("/api/v1/teams/acme/runs", {"name": "x", "data": {"dataset": "ds"}, "tags": ["\ud800"]}),
        ("/api/v1/me/keys", {"name": "a\0"}),
        ("/api/v1/teams", {"slug": "another", "name": "a\0"}),
        ("/api/v1/teams/acme/invitations", {"email": "a\0@b", "role": "viewer"}),
        ("/api/v1/teams/acme/runs", {"name": "a\0", "data": {"dataset": "ds\0"}}),
    ],
)
def test_text_that_databases_cannot_store_is_refused(site: Site, path: str, body: dict[str, Any]) -> None:
    content = json.dumps(body)  # in ASCII: a lone surrogate has no UTF-8
    response = site.admin.post(path, content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 422, response.text
    assert response.json()["errors"]


@pytest.mark.parametrize(
    "path",
    [
        "/%00",
        "/api/v1/teams/%00/runs",
        "/api/v1/teams/acme/runs?cursor=%00",
        f"/api/v1/teams/acme/runs/{RUN}/logs/1/%00",
        f"/api/v1/teams/acme/runs/{RUN}/logs/{HUGE}/x.log",
        f"/api/v1/teams/acme/runs/{RUN}/logs/1/x.log?offset={HUGE}",
        f"/api/v1/teams/acme/runs/{RUN}/events?after={HUGE}",
        f"/api/v1/teams/acme/runs/{RUN}/metrics?after_step={HUGE}",
    ],
)
def test_an_address_without_a_resource_is_not_found(site: Site, path: str) -> None:
    response = site.admin.get(path)
    assert response.status_code == (422 if HUGE in path else 404), response.text


@pytest.mark.parametrize("given", ["yes", "1", "on", "True", ""])
def test_flags_must_be_true_or_false(site: Site, given: str) -> None:
    for method, path, field in (
        ("DELETE", f"{site.path}/runs/{RUN}?dry_run={given}", "dry_run"),
        ("GET", f"{site.path}/checkpoints?pinned={given}", "pinned"),
    ):
        response = site.admin.request(method, path)
        assert response.status_code == 422, response.text
        assert [problem["field"] for problem in response.json()["errors"]] == [field]
        assert "true or false" in response.json()["detail"]
    body = {"pinned": given or 1}
    response = site.admin.patch(f"{site.path}/runs/{RUN}/checkpoints/{RUN}", json=body)
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "pinned")


def test_a_page_address_of_any_length_serves_the_page(site: Site) -> None:
    assert site.admin.get("/" + "a" * 300).status_code == 200


def test_only_one_of_concurrent_teams_with_the_same_slug_is_created(site: Site) -> None:
    begin = threading.Barrier(4)
    found: list[int] = []

    def make() -> None:
        begin.wait()
        response = site.admin.post("/api/v1/teams", json={"slug": "twin", "name": "Twin"})
        found.append(response.status_code)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [201, 409, 409, 409]


def test_a_body_without_its_content_type_is_refused_with_the_remedy(site: Site) -> None:
    response = site.admin.post(
        "/api/v1/me/keys",
        content='{"name": "x"}',
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert response.status_code == 422
    assert "Content-Type: application/json" in response.json()["detail"]
    assert response.json()["errors"][0]["value"] is None
