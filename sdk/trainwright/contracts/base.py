"""What every contract is built on: strict specs, lenient envelopes, and errors a person can act on.

A *spec* says what to do, so an unknown key in it is an error: ignoring one would change the training. An
*envelope* carries what happened, so unknown keys in it are ignored: an older reader must survive a newer writer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError


class Strict(BaseModel):
    """A part of a spec: immutable, unknown keys refused, the sentence under a field is its documentation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False, validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _no_zero_characters(cls, given: Any) -> Any:
        """PostgreSQL keeps no text that holds one, and no person writes one."""
        for key, value in given.items() if isinstance(given, Mapping) else ():
            if isinstance(value, str) and "\0" in value:
                message = "It holds a character of code zero, which no text has."
                raise PydanticCustomError("refused", message, {"field": str(key), "value": value})
        return given


class Envelope(BaseModel):
    """A message between parts that are upgraded apart: unknown keys are ignored."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, use_attribute_docstrings=True, ser_json_inf_nan="constants"
    )


class _Percent:
    """Marks a fraction that people read and write in percent."""


IN_PERCENT = _Percent()

RANGE_ERRORS = {
    "greater_than": "small",
    "greater_than_equal": "small",
    "less_than": "large",
    "less_than_equal": "large",
}
"""A library's names for numbers out of range, and which way they are."""

LARGEST_SHOWN = 10**18
LONGEST_SHOWN = 40

PLAIN = {
    "int_parsing": "Write a whole number",
    "int_type": "Write a whole number",
    "int_from_float": "Write a whole number",
    "float_parsing": "Write a number",
    "float_type": "Write a number",
    "bool_parsing": "Write true or false",
    "string_type": "Write a text",
    "model_type": "Write an object with keys and values",
    "model_attributes_type": "Write an object with keys and values",
    "dict_type": "Write an object with keys and values",
    "tuple_type": "Write a list",
    "list_type": "Write a list",
}
"""What people read in the place of a library's words about its types."""

EMAIL_PATTERN = r"^[^@\s]+@[^@\s]+$"
SLUG_PATTERN = r"^[a-z][a-z0-9-]{1,38}[a-z0-9]$"
NODE_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"
PATTERNS = {
    EMAIL_PATTERN: "Write an e-mail address, such as ana@example.org",
    SLUG_PATTERN: "Write 3 to 40 lower-case letters, digits and hyphens, such as my-team: a letter first, and no"
    " hyphen last",
    NODE_PATTERN: "Write lower-case letters, digits and hyphens, such as gpu-07: 63 at most, and no hyphen first",
}
"""What people read in the place of a pattern."""


class Problem(Envelope):
    """One thing that is wrong with an input, at the field where it is wrong."""

    field: str
    """Dotted path of the field, such as ``optimizer.learning_rate``; empty for the input as a whole."""

    message: str
    """The rule that was broken and, where it is known, what to write instead."""

    value: Any = None
    """The value that was given, shortened when long."""


def refused(field: str, value: Any, rule: str) -> PydanticCustomError:
    """The error of a validator that looks at several fields and blames one, ``field`` of the model it stands in."""
    return PydanticCustomError("refused", "{value} {rule}", {"field": field, "value": value, "rule": rule})


def problems(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Turn a validation error of ``model`` into problems that name field, value and rule.

    A key that does not exist is answered with the closest one that does.
    """
    return problems_in(error.errors(include_url=False), model)


def problems_in(errors: Sequence[Mapping[str, Any]], model: type[BaseModel] | None) -> list[Problem]:
    """As `problems`, from error records that a framework has already taken out of the exception."""
    found: list[Problem] = []
    for item in errors:
        path = tuple(str(part) for part in item["loc"])
        if item["type"] == "refused":
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
        else:
            message = _in_plain_words(item)
            found.append(
                Problem(field=".".join(path), message=_sentence(message), value=_short(item["input"]))
            )
    return _alternatives_joined(found)


def _in_plain_words(item: Mapping[str, Any]) -> str:
    """A library's message, or ours where it speaks of types, patterns and its own counting."""
    kind, context = item["type"], item.get("ctx", {})
    said: str = PLAIN.get(kind, item["msg"].removeprefix("Value error, "))
    if kind == "string_too_long":
        return f"This is too long: write at most {context['max_length']:,} characters"
    if kind == "string_too_short":
        least = context["min_length"]
        return (
            "Write something here" if least == 1 else f"This is too short: write {least:,} characters or more"
        )
    if kind == "string_pattern_mismatch":
        return PATTERNS.get(context["pattern"], said)
    return said


ALTERNATIVE = re.compile(r"\.(str-enum|tuple|list)\[[^\]]*\]$")
"""No place in the input, but a library's name for one of several types that would do: ``stages.tuple[int, ...]``."""


def _alternatives_joined(found: Sequence[Problem]) -> list[Problem]:
    """One problem for a field that may be of several types, each of which has said why not."""
    joined: list[Problem] = []
    for one in found:
        field = ALTERNATIVE.sub("", one.field)
        if field != one.field and joined and joined[-1].field == field:
            before = joined.pop().message
            joined.append(one.model_copy(update={"field": field, "message": f"{before} Or: {one.message}"}))
        else:
            joined.append(one.model_copy(update={"field": field}))
    return joined


def _out_of_range(item: Mapping[str, Any], field: FieldInfo | None) -> str:
    """Value, range and unit, in percent where pages show percent."""
    broken = item["ctx"]
    bounds = {name: broken[name] for name in ("ge", "gt", "le", "lt") if name in broken}
    for mark in field.metadata if field else ():
        bounds |= {name: getattr(mark, name) for name in ("ge", "gt", "le", "lt") if hasattr(mark, name)}
    way = f"is too {RANGE_ERRORS[item['type']]}"
    said = f"{_number(item['input'])} {way}: write {_range(bounds)}."
    if field is None or not any(isinstance(mark, _Percent) for mark in field.metadata):
        return said
    given = item["input"] * 100 if isinstance(item["input"], int | float) else item["input"]
    percent = _range({name: bound * 100 for name, bound in bounds.items()})
    return f"{_number(given)} % {way}: it can be {percent} %. In a file, {said}"


def _range(bounds: Mapping[str, Any]) -> str:
    if "ge" in bounds and "le" in bounds:
        return f"{_number(bounds['ge'])} to {_number(bounds['le'])}"
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    return " and ".join(f"{word} {_number(bounds[name])}" for name, word in words.items() if name in bounds)


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= LARGEST_SHOWN:
        return str(_short(str(value)[:LONGEST_SHOWN] if isinstance(value, str) else "This number"))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"


def _field_at(path: tuple[str, ...], model: type[BaseModel] | None) -> FieldInfo | None:
    """The declaration of the field at ``path``, indices of lists passed over."""
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
    """With a full stop; what was given stays as it was written."""
    return text if text.endswith((".", "?")) else f"{text}."


def _short(value: Any, limit: int = 120) -> Any:
    """What JSON can carry: numbers that are finite, text that is text."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    text = value if isinstance(value, str) else repr(value)
    text = text[: limit + 1].encode(errors="backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
