"""The reference page of RunSpec, made from the contracts so that it cannot drift from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from trainwright.contracts.presets import PRESETS
from trainwright.contracts.run_spec import RunSpec

HEAD = """# The configuration of a run

Made by `trainwright schema --markdown`; the sentences stand beside the fields in
`sdk/trainwright/contracts/run_spec.py`. A key that does not exist is refused with the closest one that does.
`trainwright schema` prints the same as JSON Schema.
"""


def markdown() -> str:
    """Every section with its keys, defaults, limits and sentences."""
    schema = RunSpec.model_json_schema()
    lines = [HEAD, *_section("RunSpec", "The whole", schema, schema["$defs"]), *_presets()]
    return "\n".join(lines).rstrip() + "\n"


def _section(path: str, sentence: str, schema: dict[str, Any], parts: dict[str, Any]) -> Iterator[str]:
    rows, inner = [], []
    for key, field in schema["properties"].items():
        part = _part(field, parts)
        full = key if path == "RunSpec" else f"{path}.{key}"
        if part is not None and "properties" in part:
            inner.append((full, part))
            continue
        rows.append(f"| `{full}` | {_default(field)} | {_limits(field, part)} | {field['description']} |")
        inner += [(full, part) for part in _optional_parts(field, parts)]
    yield f"## {path if path != 'RunSpec' else sentence}\n"
    if path != "RunSpec":
        yield f"{schema['description'].splitlines()[0]}\n"
    if rows:
        yield "| key | default | allowed | |\n|---|---|---|---|"
        yield from rows
        yield ""
    for full, part in inner:
        yield from _section(full, "", part, parts)


def _part(field: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any] | None:
    reference = field.get("$ref")
    return parts[reference.rsplit("/", 1)[-1]] if reference else None


def _optional_parts(field: dict[str, Any], parts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The section that may stand in a field that may also be empty."""
    for choice in field.get("anyOf", []):
        part = _part(choice, parts)
        if part is not None and "properties" in part:
            yield part


def _default(field: dict[str, Any]) -> str:
    if "default" not in field:
        return "required"
    value = field["default"]
    return "empty" if value is None else f"`{json.dumps(value).strip(chr(34))}`"


def _limits(field: dict[str, Any], part: dict[str, Any] | None) -> str:
    if part is not None and "enum" in part:
        return ", ".join(f"`{choice}`" for choice in part["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    rules = next((one for one in field.get("anyOf", []) if one.get("type") != "null"), field)
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {rules[key]:,}" for key, sign in signs.items() if key in rules]
    return ", ".join([rules.get("type", ""), *found])


def _presets() -> Iterator[str]:
    yield "## Presets\n\nA preset fills the `model` section.\n"
    yield "| name | layers | width | heads | kv_heads |\n|---|---|---|---|---|"
    for name, model in PRESETS.items():
        yield f"| `{name}` | {model.layers} | {model.width:,} | {model.heads} | {model.key_value_heads} |"
