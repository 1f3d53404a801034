"""Reference pages of the REST API, made from its OpenAPI document: the routes by resource, and the types that they use."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

TYPES_PAGE = "rest-types.md"

ROUTES_HEAD = f"""# REST API

Every route, from the OpenAPI document (`GET /api/v1/openapi.json`). [The guide](../api.md) explains authentication, errors and
lists, and has examples. A refused request gets an [`ErrorBody`]({TYPES_PAGE}#type-errorbody).
"""

TYPES_HEAD = """# REST types

The JSON bodies of requests and responses. Fields without a default are required in requests.
"""

NUMBER_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def routes_page(document: dict[str, Any]) -> str:
    """All operations, a section for each tag."""
    by_tag: dict[str, list[str]] = defaultdict(list)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag[operation["tags"][0]] += _operation(method, path, operation)
    lines = [ROUTES_HEAD]
    for tag in sorted(by_tag):
        lines += [f"## {tag.capitalize()}\n", *by_tag[tag]]
    return "\n".join(lines)


def types_page(document: dict[str, Any]) -> str:
    """All schemas, in alphabetical order."""
    lines = [TYPES_HEAD]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += [f"(type-{name.lower()})=\n## {name}\n", *_schema(schema)]
    return "\n".join(lines)


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`\n"
    yield f"{operation.get('description', operation['summary']).strip()}\n"
    rows = [_parameter(parameter) for parameter in operation.get("parameters", [])]
    if rows:
        yield "| parameter | in | type | default | |\n|---|---|---|---|---|"
        yield from rows
        yield ""
    bodies = operation.get("requestBody", {}).get("content", {})
    if bodies:
        yield f"Request: {_contents(bodies, TYPES_PAGE)}.\n"
    for status, response in operation["responses"].items():
        if status.isdecimal():
            yield f"{status}: {_contents(response.get('content', {}), TYPES_PAGE) or 'no content'}.\n"


def _parameter(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    default = "required" if parameter.get("required") else _default(schema)
    description = _in_cell(parameter.get("description", schema.get("description", "")))
    return f"| `{parameter['name']}` | {parameter['in']} | {_type(schema, TYPES_PAGE)} | {default} | {description} |"


def _contents(contents: dict[str, Any], page: str) -> str:
    """The types of a body by media type; JSON is not named."""
    shown = []
    for media, content in contents.items():
        schema = content.get("schema", {})
        known = _type(schema, page) if schema else ""
        shown.append(known if known and media == "application/json" else f"`{media}`")
    return " or ".join(shown)


def _schema(schema: dict[str, Any]) -> Iterator[str]:
    if description := schema.get("description"):
        yield f"{description.strip()}\n"
    if "enum" in schema:
        yield f"One of {', '.join(f'`{value}`' for value in schema['enum'])}.\n"
    if properties := schema.get("properties"):
        yield "| field | type | default | |\n|---|---|---|---|"
        for name, field in properties.items():
            default = "" if name in schema.get("required", []) else _default(field)
            yield f"| `{name}` | {_type(field, '')} | {default} | {_in_cell(field.get('description', ''))} |"
        yield ""


def _type(schema: dict[str, Any], page: str) -> str:
    """A type in words; named ones are links to their section in ``page``."""
    if reference := schema.get("$ref"):
        name = reference.rsplit("/", 1)[-1]
        return f"[{name}]({page}#type-{name.lower()})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_type(choice, page) for choice in choices)
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}), page)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'], page)}"
    limits = [f"{sign} {schema[key]:,}" for key, sign in NUMBER_LIMITS.items() if key in schema]
    return ", ".join([schema.get("format", kind), *limits])


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return ""
    value = schema["default"]
    return "null" if value is None else f"`{json.dumps(value)}`"


def _in_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
