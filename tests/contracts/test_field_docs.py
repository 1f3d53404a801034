"""The string below a field is the field's description in the JSON schema, and nothing reads it before."""

from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, Field

from trainwright.contracts.field_docs import Documented, field_docs

Item = TypeVar("Item")


class Outer(Documented):
    class Inner(Documented):
        size: int
        """Of a class
        inside another."""

    inner: Inner
    """A reference."""

    plain: int
    given: Annotated[int, Field(description="Given.")]
    """Not used: the field has a description."""

    replaced: int
    """Of the base."""


class Derived(Outer):
    replaced: int
    """Of the derived class."""


class Page(Documented, Generic[Item]):
    items: list[Item]
    """Of any kind."""


def _descriptions(model: type[BaseModel]) -> dict[str, Any]:
    return {name: shown.get("description") for name, shown in model.model_json_schema()["properties"].items()}


def test_the_schema_describes_fields_by_the_strings_below_them() -> None:
    assert _descriptions(Outer) == {
        "inner": "A reference.",
        "plain": None,
        "given": "Given.",
        "replaced": "Of the base.",
    }
    assert _descriptions(Outer.Inner) == {"size": "Of a class\ninside another."}
    assert _descriptions(Page[int]) == {"items": "Of any kind."}


def test_a_derived_class_has_the_descriptions_of_its_base_unless_it_has_its_own() -> None:
    assert _descriptions(Derived) == _descriptions(Outer) | {"replaced": "Of the derived class."}


def test_a_class_without_a_source_has_no_descriptions() -> None:
    made = type("Made", (), {"__module__": "a_module_that_does_not_exist"})
    assert field_docs(made) == {}
