"""A curation's counts before it is applied equal those after it."""

from typing import Any

import pytest

from tests.backend.datasets.dataset_editor import DatasetEditor, Json, letters, lines
from trainwright_backend.control.queued_deletions import delete_queued_bytes
from trainwright_backend.datasets import curation_counts, documents

CURATIONS: list[Json] = [
    {},
    {"drop_duplicates": True},
    {"rules": {"min_characters": 12, "max_characters": 14}},
    {"drop_duplicates": True, "rules": {"min_letter_fraction": 0.6, "max_mean_word_characters": 5.0}},
]


def same(dataset: Json, counted: Json) -> None:
    statistics = dataset["versions"][0]["statistics"]
    for name in ("documents", "kept", "characters", "rejected", "duplicates", "dropped", "lengths"):
        assert counted[name] == statistics[name], name


@pytest.mark.parametrize("curation", CURATIONS)
def test_a_count_equals_the_version_s_statistics(editor: DatasetEditor, curation: Json) -> None:
    texts = [f"number {number % 170} of many" for number in range(200)]
    made = editor.make(**{"a.jsonl": lines(*texts), "b.jsonl": lines("12345678901234", "short", "a b c d")})
    counted = editor.post("datasets/count", {"dataset": made["id"], "curation": curation})
    assert counted.status_code == 200, counted.text
    same(editor.add(made, curation=curation), counted.json())
    assert counted.json()["counted_fraction"] == 1.0


def test_a_mixture_is_counted_too(editor: DatasetEditor) -> None:
    one = editor.make("one", **{"a.jsonl": letters(300)})
    two = editor.make("two", **{"b.jsonl": letters(100, first=1000)})
    curation = {"mix": [{"dataset": item["id"], "weight": 1} for item in (one, two)]}
    counted = editor.post("datasets/count", {"curation": curation}).json()
    mixed = editor.make("mixed", curation)
    same(mixed, counted)
    assert counted["mix"] == mixed["versions"][0]["statistics"]["mix"]


@pytest.mark.slow(target="databases")
def test_a_large_version_is_counted_by_a_sample_and_reports_it(
    editor: DatasetEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{number}.jsonl": letters(50, first=1000 * number) for number in range(8)}
    made = editor.make(**files)
    monkeypatch.setattr(curation_counts, "MAX_COUNTED_CHUNKS", 4)
    counted = editor.post("datasets/count", {"dataset": made["id"], "curation": {}}).json()
    assert counted["counted_fraction"] == pytest.approx(0.5)
    assert counted["documents"] == pytest.approx(400, rel=0.01)


@pytest.mark.parametrize(
    ("requested", "code", "expected"),
    [
        ({}, "invalid", "dataset"),
        ({"dataset": "{waiting}"}, "version_not_ready", "Wait"),
        ({"dataset": "{ready}", "version": 4}, "invalid", "only version 1"),
        (
            {"dataset": "{ready}", "curation": {"read": {"field": "body"}}},
            "not_read_this_way",
            "Create a version",
        ),
        ({"dataset": "ds_nonsense"}, "not_found", "ds_nonsense"),
        ({"dataset": "{mixed}"}, "invalid", "is a mixture"),
    ],
)
def test_an_impossible_count_is_refused_with_its_reason(
    editor: DatasetEditor, requested: Json, code: str, expected: str
) -> None:
    ready = editor.make("ready", **{"a.jsonl": letters()})
    names: dict[str, Any] = {
        "{ready}": ready["id"],
        "{mixed}": editor.make("mixed", {"mix": [{"dataset": ready["id"], "weight": 1}]})["id"],
        "{waiting}": editor.make("waiting", ready=False, **{"a.jsonl": lines("new")})["id"],
    }
    body = {"curation": {}} | {
        key: names.get(value, value) if isinstance(value, str) else value for key, value in requested.items()
    }
    response = editor.post("datasets/count", body)
    assert response.json()["code"] == code and expected in response.json()["detail"]


def delete_newest_before(
    editor: DatasetEditor, made: Json, monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    """Delete the newest version just before the function of ``module`` reads its objects."""
    look = getattr(module, name)

    def later(*given: Any) -> Any:
        assert editor.delete(f"datasets/{made['id']}/versions/2").status_code == 204
        delete_queued_bytes(editor.site.app.state.database, editor.site.app.state.store)
        monkeypatch.setattr(module, name, look)
        return look(*given)

    monkeypatch.setattr(module, name, later)


def with_two_versions(editor: DatasetEditor) -> Json:
    made = editor.make(**{"a.jsonl": letters()})
    return editor.add(made, uploads=[editor.send("b.jsonl", letters(20, first=500))])


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize(
    ("version", "status", "code"), [(2, 422, "invalid"), (None, 409, "deleted_meanwhile")]
)
def test_deleting_a_version_during_a_count_is_reported(
    editor: DatasetEditor, monkeypatch: pytest.MonkeyPatch, version: int | None, status: int, code: str
) -> None:
    made = with_two_versions(editor)
    delete_newest_before(editor, made, monkeypatch, curation_counts, "curate_sources")
    response = editor.post("datasets/count", {"dataset": made["id"], "version": version, "curation": {}})
    assert (response.status_code, response.json()["code"]) == (status, code), response.text


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_deleting_a_version_while_its_documents_are_read_is_reported(
    editor: DatasetEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = with_two_versions(editor)
    delete_newest_before(editor, made, monkeypatch, documents, "_samples")
    response = editor.site.admin.get(f"{editor.site.path}/datasets/{made['id']}/versions/2/documents")
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("look", ["count", "documents"])
def test_missing_objects_that_were_not_deleted_are_a_server_error(editor: DatasetEditor, look: str) -> None:
    made = editor.make(**{"a.jsonl": letters()})
    for key in editor.stored():
        if "/readings/" in key:
            editor.path_of(key).unlink()
    path = f"{editor.site.path}/datasets"
    if look == "count":
        response = editor.site.admin.post(f"{path}/count", json={"dataset": made["id"], "curation": {}})
    else:
        response = editor.site.admin.get(f"{path}/{made['id']}/versions/1/documents")
    assert response.status_code == 500


def test_a_field_that_was_detected_equals_one_that_was_named(editor: DatasetEditor) -> None:
    made = editor.make(**{"a.jsonl": letters()})
    curation = {"read": {"field": "text"}}
    assert editor.post("datasets/count", {"dataset": made["id"], "curation": curation}).status_code == 200
