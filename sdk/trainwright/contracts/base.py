"""Base classes of the contracts: strict specs, lenient envelopes, and errors that users can act on.

A *spec* says what to do, so an unknown key is an error: ignoring it would change the training. An *envelope* reports what
happened, so unknown keys are ignored: an older reader must understand a newer writer.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from math import isfinite
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from trainwright.contracts.field_docs import Documented

STORABLE_TEXT = ConfigDict(str_min_length=0)
"""Pydantic accepts lone surrogates, which have no UTF-8, in text without constraints; this refuses them in all text."""


class Strict(Documented):
    """A section of a spec: immutable, without unknown keys. The sentence under a field is its documentation."""

    model_config = STORABLE_TEXT | ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _check_values(cls, given: Any) -> Any:
        refuse_null_characters(given)
        _refuse_booleans(cls, given)
        return given


class Envelope(Documented):
    """A message between components that are upgraded separately: unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, ser_json_inf_nan="constants")


class Report(Envelope):
    """An envelope from a node, whose text is stored as it is."""

    model_config = STORABLE_TEXT

    @model_validator(mode="before")
    @classmethod
    def _without_null_characters(cls, given: Any) -> Any:
        refuse_null_characters(given)
        return given


def refuse_null_characters(given: Any) -> None:
    """PostgreSQL cannot store them, and nobody types them. Sections check their own text.

    Raises:
        PydanticCustomError: text of a field, or of its list, contains one.
    """
    for key, value in given.items() if isinstance(given, Mapping) else ():
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and "\0" in text:
                message = "It contains a null character, which text cannot have."
                raise PydanticCustomError("field_error", message, {"field": str(key), "value": text})


def _refuse_booleans(model: type[BaseModel], given: Any) -> None:
    """Pydantic reads true as 1 and false as 0, so that a mistake would become a number of steps or of checkpoints to keep.

    Raises:
        PydanticCustomError: a field for numbers, or its list, contains one.
    """
    for key, value in given.items() if isinstance(given, Mapping) else ():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, bool) and key in _number_fields(model):
                message = "Write a number, not true or false."
                raise PydanticCustomError("field_error", message, {"field": str(key), "value": item})


@cache
def _number_fields(model: type[BaseModel]) -> frozenset[str]:
    """The fields whose values, or the items of whose lists, may be numbers but not booleans."""
    types = {name: _plain_types(field.annotation) for name, field in model.model_fields.items()}
    return frozenset(
        name for name, found in types.items() if found & {int, float} and not found & {bool, Any}
    )


def _plain_types(annotation: Any) -> set[Any]:
    parts = () if get_origin(annotation) is Literal else get_args(annotation)
    return {annotation}.union(*map(_plain_types, parts)) if isinstance(annotation, Hashable) else set()


class _Percent:
    """Marks a fraction that users read and write in percent."""


IN_PERCENT = _Percent()

RANGE_ERRORS = {
    "greater_than": "small",
    "greater_than_equal": "small",
    "less_than": "large",
    "less_than_equal": "large",
}
"""Pydantic's error types for numbers out of range, and whether they are too small or too large."""

NOT_COMPARED = {
    "int_parsing_size": "This number has too many digits: write {}.",
    "finite_number": "Write a finite number: {}.",
}
"""Pydantic's error types for numbers that it does not compare with the bounds of their field, and messages with the bounds."""

BOUNDS = ("ge", "gt", "le", "lt")

MAX_SHOWN_NUMBER = 10**18
MAX_SHOWN_LENGTH = 40

PLAIN = {
    "int_parsing": "Write a whole number",
    "int_type": "Write a whole number",
    "int_from_float": "Write a whole number",
    "float_parsing": "Write a number with a decimal point, such as 0.5",
    "float_type": "Write a number",
    "bool_parsing": "Write true or false",
    "bool_type": "Write true or false",
    "string_type": "Write text",
    "string_unicode": "Write valid Unicode: it contains half of a surrogate pair",
    "model_type": "Write an object with keys and values",
    "model_attributes_type": "Write an object with keys and values",
    "dict_type": "Write an object with keys and values",
    "tuple_type": "Write a list",
    "list_type": "Write a list",
    "int_parsing_size": "This number has too many digits",
    "timezone_aware": "Write a time with its time zone, such as 2026-11-26T09:30:00Z",
    "datetime_type": "Write a date and a time, such as 2026-11-26T09:30:00Z",
    "datetime_parsing": "Write a date and a time, such as 2026-11-26T09:30:00Z",
    "datetime_object_invalid": "Write a date and a time, such as 2026-11-26T09:30:00Z",
    "datetime_from_date_parsing": "Write a date and a time, such as 2026-11-26T09:30:00Z",
    "finite_number": "Write a finite number",
    "json_invalid": "This is not valid JSON",
}
"""Plain messages that replace Pydantic's messages about types."""

EMAIL_PATTERN = r"^[^@\s]+@[^@\s]+$"
SLUG_PATTERN = r"^[a-z][a-z0-9-]{1,38}[a-z0-9]$"
WEB_ADDRESS_PATTERN = r"^https?://[^\s@]+$"
NAME_PATTERN = r"\S"
NODE_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"
CAPABILITY_PATTERN = r"^\d{1,2}\.\d$"
LAYERS_PATTERN = r"^\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*$"
PATTERNS = {
    EMAIL_PATTERN: "Write an email address, such as ana@example.org",
    SLUG_PATTERN: "Write 3 to 40 lowercase letters, digits and hyphens, such as my-team. Start with a letter, and"
    " do not end with a hyphen",
    WEB_ADDRESS_PATTERN: "Write an http or https address without a user name, such as https://example.org/hook",
    CAPABILITY_PATTERN: "Write a compute capability, such as 8.0",
    LAYERS_PATTERN: "Write layers and ranges of layers, such as 0-3,12",
    NAME_PATTERN: "Write a name: it cannot consist of spaces only",
    NODE_PATTERN: "Write up to 63 lowercase letters, digits and hyphens, such as gpu-07. Do not start with a hyphen",
}
"""Plain messages that replace patterns."""


class Problem(Envelope):
    """One thing that is wrong with an input, and the field that it concerns."""

    field: str
    """Dotted path of the field, such as ``optimizer.learning_rate``; empty for the entire input."""

    message: str
    """The rule that was broken and, if known, what to write instead."""

    value: Any = None
    """The given value, shortened if it is long."""


def field_error(field: str, value: Any, rule: str) -> PydanticCustomError:
    """The error of a validator that checks several fields and reports one of them, ``field``, relative to its model."""
    return PydanticCustomError(
        "field_error", "{value} {rule}", {"field": field, "value": value, "rule": rule}
    )


def problems(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Turn a validation error of ``model`` into problems that name field, value and rule.

    For an unknown key the message suggests the closest existing one.
    """
    return problems_in(error.errors(include_url=False), model)


def problems_in(errors: Sequence[Mapping[str, Any]], model: type[BaseModel] | None) -> list[Problem]:
    """Like `problems`, from the error records of an exception."""
    found: list[Problem] = []
    for item in errors:
        path = tuple(str(part) for part in item["loc"])
        if item["type"] == "field_error":
            blamed = item["ctx"]
            field = ".".join((*path, blamed["field"]))
            found.append(Problem(field=field, message=_ended(item["msg"]), value=_short(blamed["value"])))
        elif item["type"] == "extra_forbidden":
            found.append(
                Problem(field=".".join(path), message=_unknown_key(path, model), value=_short(item["input"]))
            )
        elif item["type"] == "missing":
            found.append(Problem(field=".".join(path), message="This field is required."))
        elif item["type"] in RANGE_ERRORS:
            message = _out_of_range(item, _field_at(path, model))
            found.append(Problem(field=".".join(path), message=message, value=_short(item["input"])))
        elif item["type"] in NOT_COMPARED and (bounds := _bounds_of(_field_at(path, model))):
            message = NOT_COMPARED[item["type"]].format(_range(bounds))
            found.append(Problem(field=".".join(path), message=message, value=_short(item["input"])))
        else:
            message = _in_plain_words(item)
            found.append(
                Problem(field=".".join(path), message=_sentence(message), value=_short(item["input"]))
            )
    return _join_alternatives(found)


def _in_plain_words(item: Mapping[str, Any]) -> str:
    """Pydantic's message, or a plain one for types, patterns and lengths."""
    kind, context = item["type"], item.get("ctx", {})
    message: str = PLAIN.get(
        kind, PYDANTIC_SUBJECT.sub("This should", item["msg"].removeprefix("Value error, "))
    )
    if kind in ("enum", "literal_error"):
        return f"Choose {context['expected'].replace(chr(39), '')}"
    if kind == "too_short" and context["field_type"] == "Value":  # a SecretStr
        kind = "string_too_short"
    if kind in ("too_long", "too_short"):
        most = kind == "too_long"
        bound = f"{context['max_length' if most else 'min_length']:,}"
        return f"This list is too {'long' if most else 'short'}: it needs {'at most' if most else 'at least'} {bound} elements"
    if kind == "string_too_long":
        return f"This is too long: write at most {context['max_length']:,} characters"
    if kind == "string_too_short":
        least = context["min_length"]
        return (
            "This must not be empty"
            if least == 1
            else f"This is too short: write {least:,} characters or more"
        )
    if kind == "string_pattern_mismatch":
        return PATTERNS.get(context["pattern"], message)
    return message


PYDANTIC_SUBJECT = re.compile(r"^(?:Input|String|Value|URL|Data) should")
"""How Pydantic's messages start, for the types that have no plain message here."""

ALTERNATIVE = re.compile(r"\.(str-enum|tuple|list)\[[^\]]*\](\.\d+)?$")
"""Suffix that Pydantic adds to a path for one of several allowed types: ``stages.tuple[int, ...].0``."""


def _join_alternatives(found: Sequence[Problem]) -> list[Problem]:
    """Join the problems of a field that may have several types, one problem for each type."""
    joined: list[Problem] = []
    for item in found:
        field = ALTERNATIVE.sub("", item.field)
        if field != item.field and joined and joined[-1].field == field:
            before = joined.pop().message
            joined.append(item.model_copy(update={"field": field, "message": f"{before} Or: {item.message}"}))
        else:
            joined.append(item.model_copy(update={"field": field}))
    return joined


def _bounds_of(field: FieldInfo | None) -> dict[str, Any]:
    """The bounds of a field by the names of `BOUNDS`."""
    marks = field.metadata if field else ()
    return {name: getattr(mark, name) for mark in marks for name in BOUNDS if hasattr(mark, name)}


def _out_of_range(item: Mapping[str, Any], field: FieldInfo | None) -> str:
    """A message with value and range, in percent if pages show percent."""
    bounds = {name: bound for name, bound in item["ctx"].items() if name in BOUNDS} | _bounds_of(field)
    way = f"is too {RANGE_ERRORS[item['type']]}"
    message = f"{_number(item['input'])} {way}: write {_range(bounds)}."
    if field is None or not any(isinstance(mark, _Percent) for mark in field.metadata):
        return message
    given = item["input"] * 100 if isinstance(item["input"], int | float) else item["input"]
    percent = _range({name: bound * 100 for name, bound in bounds.items()})
    return f"{_number(given)} % {way}: it can be {percent} %. In a file, {message}"


def _range(bounds: Mapping[str, Any]) -> str:
    if "ge" in bounds and "le" in bounds:
        return f"{_bound(bounds['ge'])} to {_bound(bounds['le'])}"
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    return " and ".join(f"{word} {_bound(bounds[name])}" for name, word in words.items() if name in bounds)


def _bound(value: int | float) -> str:
    """A bound of ours, which may be larger than any number that people write: 2^63."""
    power = value.bit_length() - 1 if isinstance(value, int) and value >= MAX_SHOWN_NUMBER else 0
    return f"2^{power}" if power and value == 1 << power else _number(value)


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= MAX_SHOWN_NUMBER:
        return str(_short(str(value)[:MAX_SHOWN_LENGTH] if isinstance(value, str) else "This number"))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"


def _field_at(path: tuple[str, ...], model: type[BaseModel] | None) -> FieldInfo | None:
    """The declaration of the field at ``path``, ignoring list indices."""
    field = None
    for part in path:
        if part.isdecimal():
            continue
        field = None if model is None else model.model_fields.get(part)
        model = None if field is None else _model_in(field.annotation)
    return field


def _unknown_key(path: tuple[str, ...], model: type[BaseModel] | None) -> str:
    keys = [] if model is None else list(_keys_at(path[:-1], model))
    near = get_close_matches(path[-1], keys, n=1, cutoff=0.6)
    where = ".".join(path[:-1]) or "the spec"
    if near:
        return f"There is no key '{path[-1]}' in {where}. Did you mean '{near[0]}'?"
    has = f" It has: {', '.join(keys)}." if keys else ""
    return f"There is no key '{path[-1]}' in {where}.{has}"


def _keys_at(path: tuple[str, ...], model: type[BaseModel]) -> Iterator[str]:
    for part in path:
        field = model.model_fields.get(part)
        inner = None if field is None else _model_in(field.annotation)
        if inner is None:
            return
        model = inner
    yield from model.model_fields


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _sentence(message: str) -> str:
    return _ended(message[:1].upper() + message[1:])


def _ended(text: str) -> str:
    """``text`` with a full stop, unless it already ends a sentence."""
    return text if text.endswith((".", "?")) else f"{text}."


def _short(value: Any, limit: int = 120) -> Any:
    """``value`` as JSON can represent it, shortened: finite numbers, valid Unicode."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    text = value if isinstance(value, str) else repr(value)
    text = text[: limit + 1].encode(errors="backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
