"""Reading the files that describe runs, curations and tokenizers: JSON, or YAML as the page of a new run writes it.

YAML is read by the core schema of YAML 1.2, as on the page: `no` is text and `3e-4` a number, which they are not in PyYAML's
YAML 1.1. So PyYAML only parses, and the values are made here. The SDK does not require PyYAML: without it, only JSON is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

_YAML_SUFFIXES = (".yaml", ".yml")

_PLAIN_VALUES: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"|~|null|Null|NULL"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda text: float(text.replace(".", ""))),
)
"""What a value without quotation marks means (YAML 1.2.2, section 10.3.2). Anything else is text."""


def read_object(path: Path) -> dict[str, Any]:
    """The fields in a JSON or YAML file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not valid, or a key appears twice. The message names the file and, if known, the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = _parse_yaml(text) if _is_yaml(path, text) else _parse_json(text)
        if not isinstance(found, dict):
            raise ValueError("there are no fields. Write `name: value` in YAML, or {...} in JSON.")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except RecursionError:
        raise ValueError(f"{path}: its sections are nested too deeply to be read.") from None
    return found


def _is_yaml(path: Path, text: str) -> bool:
    """Whether a file is YAML, by its suffix. With another suffix it is YAML unless it starts like JSON."""
    return path.suffix in _YAML_SUFFIXES or (
        path.suffix != ".json" and not text.lstrip().startswith(("{", "["))
    )


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: this is not valid JSON: {error.msg}.") from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key '{twice}' appears twice in its section. Remove one of them.")
    return found


def _parse_yaml(text: str) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise ValueError(
            "reading YAML needs the package PyYAML. Install it (pip install pyyaml), or write JSON."
        ) from None

    try:
        for event in yaml.parse(text, Loader=yaml.BaseLoader):
            # Nodes no longer show these: an alias is the same node again, and !!str is the tag of untagged text.
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"{_line(event)}aliases (*name) are not accepted. Write the value again.")
            _refuse_tag(event)
        # This loader, unlike the others, gives all untagged values the same tag.
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f"line {mark.line + 1}: "
        raise ValueError(
            f"{place}this is not valid YAML: {_explain(error.problem or error.context or '')}."
        ) from error
    except yaml.YAMLError as error:
        raise ValueError(f"this is not valid YAML: {error}.") from error
    return {} if root is None else _value(root)


def _refuse_tag(event: yaml.Event) -> None:
    tag = getattr(event, "tag", None)
    if tag is not None:
        written = tag.replace("tag:yaml.org,2002:", "!!")
        raise ValueError(
            f"{_line(event)}tags are not accepted. Remove {written}, and write text in quotation marks."
        )


def _value(node: yaml.Node) -> Any:
    if node.id == "sequence":
        return [_value(item) for item in node.value]
    if node.id == "mapping":
        return _fields(node)
    return _plain_value(node.value) if node.style is None else node.value


def _fields(node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        if key.id != "scalar":
            raise ValueError(f"{_line(key)}a key must be text.")
        if key.value in found:
            raise ValueError(
                f"{_line(key)}the key '{key.value}' appears twice in its section. Remove one of them."
            )
        found[key.value] = _value(value)
    return found


def _plain_value(text: str) -> Any:
    return next((make(text) for pattern, make in _PLAIN_VALUES if pattern.fullmatch(text)), text)


def _line(node: yaml.Node | yaml.Event) -> str:
    return f"line {node.start_mark.line + 1}: "


def _explain(problem: str) -> str:
    """The parser's words, or for the usual mistakes what to write."""
    if r"'\t'" in problem:
        return "indent with spaces instead of tabs"
    if "mapping values are not allowed" in problem:
        return "this line has a second colon, or is indented more than its section"
    if "could not find expected ':'" in problem:
        return "write `name: value`, with a colon and a space between them"
    return problem
