"""Entries of the audit log about runs and datasets."""

from typing import Any

import pytest

from tests.backend.scripted_agent import Scene


def _entries(scene: Scene) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = scene.site.admin.get(f"{scene.site.path}/audit").json()["items"]
    return items


def _objects(entry: dict[str, Any]) -> list[str | None]:
    return [part["object"] and part["object"]["id"] for part in entry["sentence"]]


@pytest.mark.parametrize("is_alone", [True, False])
def test_names_of_what_was_deleted_later_are_in_older_pages_too(scene: Scene, is_alone: bool) -> None:
    run_id = scene.submit(name="pilot")
    assert scene.cancel(run_id).status_code == 202
    if is_alone:
        assert scene.site.admin.delete(f"{scene.runs}/{run_id}").status_code == 200
    else:
        bulk = {"action": "delete", "runs": [run_id]}
        assert scene.site.admin.post(f"{scene.runs}/bulk", json=bulk).status_code == 200
    path = f"{scene.site.path}/audit"
    first = scene.site.admin.get(path, params={"limit": 1}).json()
    older = scene.site.admin.get(path, params={"limit": 1, "cursor": first["next_cursor"]}).json()
    shown = [" ".join(part["text"] for part in page["items"][0]["sentence"]) for page in (first, older)]
    assert shown == ["Deleted run pilot" if is_alone else "Asked to delete run pilot", "Cancelled run pilot"]
    assert older["items"][0]["names"] == {}, "it does not exist any more"


def test_runs_and_datasets_that_were_created_are_in_their_entries(scene: Scene) -> None:
    run_id = scene.submit(name="pilot")
    copy = scene.site.admin.post(f"{scene.runs}/{run_id}/clone", json={"name": "copy"}).json()["id"]
    cloned, submitted, *_, created = _entries(scene)
    assert _objects(cloned) == [None, run_id, None, copy]
    assert _objects(submitted) == [None, run_id]
    assert created["action"] == "create_dataset" and _objects(created) == [None, scene.dataset]
