"""Public identifiers."""

from uuid import UUID

import pytest

from trainwright_backend.core.errors import NotFound
from trainwright_backend.core.ids import new_id, parse_id, public_id


def test_ids_are_uuid7_in_order_of_creation() -> None:
    made = [new_id() for _ in range(1_000)]
    births = [value.int >> 64 for value in made]  # 60 bits of time and the version
    assert births == sorted(births)
    assert {value.version for value in made} == {7} and len(set(made)) == 1_000


def test_a_public_id_is_parsed() -> None:
    value = new_id()
    text = public_id("run", value)
    assert text.startswith("run_") and len(text) == 30 and text == text.lower()
    assert parse_id("run", text) == value


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "run_",
        "run_" + "a" * 25,
        "run_" + "a" * 27,
        "run_" + "1" * 26,
        "run_" + "é" * 26,
        public_id("run", UUID(int=7)).upper(),
        public_id("ds", UUID(int=7)),
        "run_" + "a" * 25 + "b",
        "../../etc",
    ],
)
def test_anything_else_is_not_found(wrong: str) -> None:
    with pytest.raises(NotFound):
        parse_id("run", wrong)
