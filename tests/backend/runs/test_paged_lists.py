"""Lists of one shape: pages if a request gives `limit` or `cursor`, and arrays for the clients that give neither."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.backend.scripted_agent import Scene


def recipes(scene: Scene) -> str:
    for name in ("one", "two", "three"):
        made = scene.site.admin.post(f"{scene.site.path}/recipes", json={"name": name, "spec": {}})
        assert made.status_code == 201, made.text
    return "recipes"


def invitations(scene: Scene) -> str:
    for name in ("ann", "bob", "eve"):
        new = {"email": f"{name}@acme.example", "role": "viewer"}
        assert scene.site.admin.post(f"{scene.site.path}/invitations", json=new).status_code == 201
    return "invitations"


def members(scene: Scene) -> str:
    for role in ("viewer", "editor"):
        scene.site.member(role)
    return "members"


def uploads(scene: Scene) -> str:
    for size in (1, 2, 3):
        headers = {"Tus-Resumable": "1.0.0", "Upload-Length": str(size), "Upload-Metadata": "filename YQ=="}
        made = scene.site.admin.post(f"{scene.site.path}/uploads", headers=headers)
        assert made.status_code == 201, made.text
    return "uploads"


def events(scene: Scene) -> str:
    return f"runs/{scene.running().run_id}/events"


def checkpoints(scene: Scene) -> str:
    work = scene.running(checkpoint={"every_steps": 1, "keep": 5})
    for step in (1, 2, 3):
        work.save(step)
    return f"runs/{work.run_id}/checkpoints"


@pytest.mark.parametrize("fill", [recipes, invitations, members, uploads, events, checkpoints])
def test_pages_contain_the_list_that_older_clients_get_as_an_array(
    scene: Scene, fill: Callable[[Scene], str]
) -> None:
    path = f"{scene.site.path}/{fill(scene)}"
    whole = scene.site.admin.get(path).json()
    assert isinstance(whole, list) and len(whole) >= 3
    assert scene.site.admin.get(path, params={"limit": 1_000}).json() == {"items": whole, "next_cursor": None}
    found: list[Any] = []
    asked: dict[str, Any] = {"limit": 2}
    while True:
        page = scene.site.admin.get(path, params=asked).json()
        assert len(page["items"]) <= 2
        found += page["items"]
        if page["next_cursor"] is None:
            break
        asked["cursor"] = page["next_cursor"]
    assert found == whole
    refused = scene.site.admin.get(path, params={"cursor": "nonsense"})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "cursor")
    assert scene.site.admin.get(path, params={"limit": 0}).status_code == 422


def test_a_page_of_events_begins_after_a_number(scene: Scene) -> None:
    path = f"{scene.site.path}/{events(scene)}"
    whole = scene.site.admin.get(path).json()
    page = scene.site.admin.get(path, params={"after": 1, "limit": 1}).json()
    assert page == {"items": whole[1:2], "next_cursor": "2"}
