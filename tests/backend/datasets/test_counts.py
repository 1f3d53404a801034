"""What a recipe would do, counted before it is applied: the same numbers as when it is."""

from typing import Any

import pytest

from tests.backend.datasets.desk import Desk, Json, letters, lines
from trainwright_backend.datasets import counts

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


def test_the_field_that_was_found_counts_as_named(desk: Desk) -> None:
    made = desk.make(**{"a.jsonl": letters()})
    recipe = {"read": {"field": "text"}}
    assert desk.post("datasets/count", {"dataset": made["id"], "recipe": recipe}).status_code == 200
