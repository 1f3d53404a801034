"""Names, tags and notes of runs, and clones with changed fields."""

from typing import Any

import pytest

from tests.backend.scripted_agent import Scene
from tests.backend.sent_statements import sent_statements


def count_runs(scene: Scene) -> int:
    return len(scene.site.admin.get(scene.runs).json()["items"])


def edit(scene: Scene, run_id: str, **changes: Any) -> Any:
    return scene.site.admin.patch(f"{scene.runs}/{run_id}", json=changes)


def clone(scene: Scene, run_id: str, key: str | None = None, **changes: Any) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    body = {"name": "copy", "changes": changes}
    return scene.site.admin.post(f"{scene.runs}/{run_id}/clone", json=body, headers=headers)


def problem(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["errors"][0]["field"]


def named(scene: Scene, **query: Any) -> list[str]:
    return [run["name"] for run in scene.site.admin.get(scene.runs, params=query).json()["items"]]


def test_a_renamed_run_is_found_and_sorted_by_its_new_name_and_has_an_event(scene: Scene) -> None:
    run_id = scene.submit()
    shown = edit(scene, run_id, name="Night run")
    assert shown.status_code == 200, shown.text
    assert (shown.json()["name"], shown.json()["spec"]["name"]) == ("Night run", "Night run")
    assert named(scene, q="night") == ["Night run"] and named(scene, q="pilot") == []
    events = scene.site.admin.get(f"{scene.runs}/{run_id}/events").json()
    assert (events[-1]["type"], events[-1]["message"]) == (
        "renamed",
        "renamed from pilot to Night run by Ada",
    )
    edit(scene, run_id, name="Night run", notes="a *note*")
    assert len(scene.site.admin.get(f"{scene.runs}/{run_id}/events").json()) == len(events)


@pytest.mark.both_databases
def test_omitted_fields_of_an_edit_do_not_change(scene: Scene) -> None:
    run_id = scene.submit()
    assert edit(scene, run_id, tags=["b", "a", "b"], notes="why").json()["tags"] == ["a", "b"]
    shown = edit(scene, run_id, notes="").json()
    assert (shown["name"], shown["tags"], shown["notes"]) == ("pilot", ["a", "b"], "")
    assert edit(scene, run_id, tags=[]).json()["tags"] == []


def test_invalid_tags_and_names_are_refused_at_their_field(scene: Scene) -> None:
    run_id = scene.submit()
    assert problem(edit(scene, run_id, tags=["Pilot"])) == (422, "tags.0")
    assert problem(edit(scene, run_id, tags=["two words"])) == (422, "tags.0"), (
        "pages separate tags by spaces"
    )
    bulk = {"action": "tag", "runs": [run_id], "tags": ["two words"]}
    assert problem(scene.site.admin.post(f"{scene.runs}/bulk", json=bulk)) == (422, "tags.0")
    assert problem(edit(scene, run_id, tags=[f"t{n}" for n in range(21)])) == (422, "tags")
    assert problem(edit(scene, run_id, name="../up")) == (422, "name")
    assert problem(edit(scene, run_id, colour="red")) == (422, "colour")
    viewer = scene.site.member("viewer")
    assert viewer.patch(f"{scene.runs}/{run_id}", json={"notes": "x"}).status_code == 403


@pytest.mark.both_databases
def test_a_list_by_tags_has_the_runs_with_all_of_them(scene: Scene) -> None:
    for name, tags in (("one", ["a"]), ("two", ["a", "b"]), ("three", ["b"])):
        edit(scene, scene.submit(), name=name, tags=tags)
    assert named(scene, tag=["a"]) == ["two", "one"]
    assert named(scene, tag=["a", "b"]) == ["two"]
    assert named(scene, tag="a", sort="name", order="asc") == ["one", "two"]
    assert named(scene, tag="c") == []
    assert scene.site.admin.get(scene.runs, params={"tag": "A"}).status_code == 422


def test_a_page_reads_the_tags_of_all_its_runs_at_once(scene: Scene) -> None:
    edit(scene, scene.submit(), tags=["a"])
    with sent_statements(scene.database.engine) as few:
        scene.site.admin.get(scene.runs)
    for _ in range(3):
        edit(scene, scene.submit(), tags=["a", "b"])
    with sent_statements(scene.database.engine) as many:
        shown = scene.site.admin.get(scene.runs).json()["items"]
    assert [run["tags"] for run in shown] == [["a", "b"]] * 3 + [["a"]]
    assert len(many) == len(few)


def test_a_clone_has_the_same_configuration_except_for_the_changes(scene: Scene) -> None:
    run_id = scene.submit()
    changes = {"optimizer.learning_rate": 0.5, "batch": {"global_sequences": 16}}
    made = clone(scene, run_id, **changes)
    assert made.status_code == 201, made.text
    before, spec = scene.show(run_id)["spec"], made.json()["spec"]
    assert (spec["name"], spec["optimizer"]["learning_rate"]) == ("copy", 0.5)
    assert spec["batch"] == before["batch"] | {"global_sequences": 16}
    assert (spec["data"], spec["model"]) == (before["data"], before["model"])
    assert made.json()["forked_from"] is None
    events = scene.site.admin.get(f"{scene.runs}/{made.json()['id']}/events").json()
    assert events[-1]["message"] == "copied from pilot, with other batch, optimizer.learning_rate"
    assert count_runs(scene) == 2


def test_a_clone_is_made_once_for_a_key(scene: Scene) -> None:
    run_id = scene.submit()
    first, again = clone(scene, run_id, "key"), clone(scene, run_id, "key")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert clone(scene, run_id, "key", seed=2).json()["code"] == "idempotency_key_reused"
    assert count_runs(scene) == 2


def test_a_change_of_an_unknown_field_is_refused_by_its_name(scene: Scene) -> None:
    run_id = scene.submit()
    for changes, field in (
        ({"optimizer.learning_rat": 1}, "optimizer.learning_rat"),
        ({"optimizer.learning_rate": -1}, "optimizer.learning_rate"),
        ({"optimiser.learning_rate": 1}, "optimiser"),
        ({"seed.more": 1}, "seed.more"),
        ({"name": "other"}, "name"),
        ({"precision.fp8.level": "O2"}, "precision.fp8"),
        ({".".join("a" * 50): 1}, ".".join("a" * 40) + "."),
        ({"data.dataset": "ds_unknown"}, "data.dataset"),
        ({"resources.slots_per_node": 4}, "resources.slots_per_node"),
        ({"": 1}, ""),
    ):
        assert problem(clone(scene, run_id, **changes)) == (422, field), changes
    assert count_runs(scene) == 1


def test_a_clone_that_never_fits_the_team_s_limit_is_refused_and_nothing_is_stored(scene: Scene) -> None:
    run_id = scene.submit(slots=2)
    scene.site.admin.put(f"{scene.site.path}/quota/cpu", json={"limit": 1})
    assert problem(clone(scene, run_id, "key")) == (422, "resources.slots_per_node")
    scene.site.admin.put(f"{scene.site.path}/quota/cpu", json={"limit": 2})
    assert clone(scene, run_id, "key").status_code == 201, "the key can still be used"


def test_a_run_with_deleted_data_is_shown_but_cloned_only_with_other_data(scene: Scene, upload: Any) -> None:
    work = scene.start()
    assert work.finish(10) == "succeeded"
    deleted = scene.site.admin.delete(f"{scene.site.path}/datasets/{scene.dataset}")
    assert deleted.status_code == 204, deleted.text
    assert scene.show(work.run_id)["state"] == "succeeded"
    for what in ("events", "metrics", "checkpoints", "logs"):
        assert scene.site.admin.get(f"{scene.runs}/{work.run_id}/{what}").status_code == 200
    refused = clone(scene, work.run_id)
    assert problem(refused) == (422, "data.dataset")
    assert "was deleted" in refused.json()["detail"]
    made = clone(scene, work.run_id, **{"data.dataset": upload("other")["id"]})
    assert made.status_code == 201, made.text
    assert made.json()["spec"]["data"]["version"] == 1
