"""What a recipe would do, counted before it is applied: the same numbers as when it is."""

from typing import Any

import pytest

from tests.backend.datasets.desk import Desk, Json, letters, lines
from trainwright_backend.control import sweep_bytes
from trainwright_backend.datasets import counts, documents

RECIPES: list[Json] = [
    {},
    {"drop_duplicates": True},
    {"rules": {"min_characters": 12, "max_characters": 14}},
    {"drop_duplicates": True, "rules": {"min_letter_fraction": 0.6, "max_mean_word_characters": 5.0}},
]


def same(dataset: Json, counted: Json) -> None:
    statistics = dataset["versions"][0]["statistics"]
    for name in ("documents", "kept", "characters", "rejected", "duplicates", "dropped", "lengths"):
        assert counted[name] == statistics[name], name


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_count_is_what_the_version_becomes(desk: Desk, recipe: Json) -> None:
    texts = [f"number {number % 170} of many" for number in range(200)]
    made = desk.make(**{"a.jsonl": lines(*texts), "b.jsonl": lines("12345678901234", "short", "a b c d")})
    counted = desk.post("datasets/count", {"dataset": made["id"], "recipe": recipe})
    assert counted.status_code == 200, counted.text
    same(desk.add(made, recipe=recipe), counted.json())
    assert counted.json()["counted_fraction"] == 1.0


def test_a_mixture_is_counted_too(desk: Desk) -> None:
    one = desk.make("one", **{"a.jsonl": letters(300)})
    two = desk.make("two", **{"b.jsonl": letters(100, first=1000)})
    recipe = {"mix": [{"dataset": item["id"], "weight": 1} for item in (one, two)]}
    counted = desk.post("datasets/count", {"recipe": recipe}).json()
    mixed = desk.make("mixed", recipe)
    same(mixed, counted)
    assert counted["mix"] == mixed["versions"][0]["statistics"]["mix"]


def test_a_large_version_is_counted_in_part_and_says_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{number}.jsonl": letters(50, first=1000 * number) for number in range(8)}
    made = desk.make(**files)
    monkeypatch.setattr(counts, "COUNTED_PIECES", 4)
    counted = desk.post("datasets/count", {"dataset": made["id"], "recipe": {}}).json()
    assert counted["counted_fraction"] == pytest.approx(0.5)
    assert counted["documents"] == pytest.approx(400, rel=0.01)


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ({}, "invalid", "dataset"),
        ({"dataset": "{waiting}"}, "version_not_ready", "Wait"),
        ({"dataset": "{ready}", "version": 4}, "invalid", "only version 1"),
        (
            {"dataset": "{ready}", "recipe": {"read": {"field": "body"}}},
            "not_read_this_way",
            "Make a version",
        ),
        ({"dataset": "ds_nonsense"}, "not_found", "ds_nonsense"),
        ({"dataset": "{mixed}"}, "invalid", "is a mixture"),
    ],
)
def test_what_cannot_be_counted_is_said(desk: Desk, asked: Json, code: str, said: str) -> None:
    ready = desk.make("ready", **{"a.jsonl": letters()})
    names: dict[str, Any] = {
        "{ready}": ready["id"],
        "{mixed}": desk.make("mixed", {"mix": [{"dataset": ready["id"], "weight": 1}]})["id"],
        "{waiting}": desk.make("waiting", ready=False, **{"a.jsonl": lines("new")})["id"],
    }
    body = {"recipe": {}} | {
        key: names.get(value, value) if isinstance(value, str) else value for key, value in asked.items()
    }
    answer = desk.post("datasets/count", body)
    assert answer.json()["code"] == code and said in answer.json()["detail"]


def newest_deleted_before(
    desk: Desk, made: Json, monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    """Have somebody delete the newest version just before ``module``'s function looks at its bytes."""
    look = getattr(module, name)

    def later(*given: Any) -> Any:
        assert desk.delete(f"datasets/{made['id']}/versions/2").status_code == 204
        sweep_bytes(desk.site.app.state.database, desk.site.app.state.store)
        monkeypatch.setattr(module, name, look)
        return look(*given)

    monkeypatch.setattr(module, name, later)


def with_two_versions(desk: Desk) -> Json:
    made = desk.make(**{"a.jsonl": letters()})
    return desk.add(made, uploads=[desk.send("b.jsonl", letters(20, first=500))])


@pytest.mark.parametrize(
    ("version", "status", "code"), [(2, 422, "invalid"), (None, 409, "deleted_meanwhile")]
)
def test_a_version_that_is_deleted_while_it_is_counted_is_said(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, version: int | None, status: int, code: str
) -> None:
    made = with_two_versions(desk)
    newest_deleted_before(desk, made, monkeypatch, counts, "count_sources")
    answer = desk.post("datasets/count", {"dataset": made["id"], "version": version, "recipe": {}})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_a_version_that_is_deleted_while_its_documents_are_read_is_said(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = with_two_versions(desk)
    newest_deleted_before(desk, made, monkeypatch, documents, "_samples")
    answer = desk.site.admin.get(f"{desk.site.path}/datasets/{made['id']}/versions/2/documents")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("look", ["count", "documents"])
def test_bytes_that_nobody_deleted_and_that_are_gone_are_a_fault(desk: Desk, look: str) -> None:
    made = desk.make(**{"a.jsonl": letters()})
    for key in desk.stored():
        if "/readings/" in key:
            desk.path_of(key).unlink()
    path = f"{desk.site.path}/datasets"
    if look == "count":
        answer = desk.site.admin.post(f"{path}/count", json={"dataset": made["id"], "recipe": {}})
    else:
        answer = desk.site.admin.get(f"{path}/{made['id']}/versions/1/documents")
    assert answer.status_code == 500


def test_the_field_that_was_found_counts_as_named(desk: Desk) -> None:
    made = desk.make(**{"a.jsonl": letters()})
    recipe = {"read": {"field": "text"}}
    assert desk.post("datasets/count", {"dataset": made["id"], "recipe": recipe}).status_code == 200
