"""The reference page of the server's settings, made from the fields of `Settings` and the sentences under them."""

from collections.abc import Iterator

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from sphinx.pycode import ModuleAnalyzer

from trainwright_backend.core.settings import ENVIRONMENT_PREFIX, Settings

HEAD = """# Server settings

`trainwright-server` reads its settings from environment variables. Lists and objects are written as JSON. `trainwright-server
check-settings` shows the values in use and any errors. [Operations](../operations.md) explains them in context.
"""


def page() -> str:
    """A table of all variables, and one for each group of nested ones."""
    lines = [HEAD, *_table("", Settings)]
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            prefix = f"{name}__"
            lines += [f"## {name.capitalize()}\n", f"{_sentences(Settings)[name]}\n"]
            lines += _table(prefix, field.annotation)
    return "\n".join(lines)


def _table(prefix: str, model: type[BaseModel]) -> Iterator[str]:
    sentences = _sentences(model)
    yield "| variable | type | default | |\n|---|---|---|---|"
    own = model.__annotations__
    for name, field in sorted(model.model_fields.items(), key=lambda item: item[0] not in own):
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            continue
        variable = f"{ENVIRONMENT_PREFIX}{prefix}{name}".upper()
        sentence = sentences.get(name, "")
        yield f"| `{variable}` | {_type(field)} | {_default(field)} | {sentence} |"
    yield ""


def _sentences(model: type[BaseModel]) -> dict[str, str]:
    """The docstring under each field, also of base classes."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner.__module__.startswith("trainwright"):
            documented = ModuleAnalyzer.for_module(owner.__module__).find_attr_docs()
            for (class_name, attribute), lines in documented.items():
                if class_name == owner.__name__:
                    found[attribute] = " ".join(" ".join(lines).split()).replace("|", "\\|")
    return found


def _type(field: FieldInfo) -> str:
    annotation = field.annotation
    name = annotation.__name__ if type(annotation) is type else str(annotation)
    if SecretStr.__name__ in name:
        return "secret"
    words = {"str": "text", "int": "integer", "float": "number", "bool": "`true` or `false`", "Path": "path"}
    name = name.replace("pathlib.", "").replace(" | None", "")
    if name in words:
        return words[name]
    choices = getattr(annotation, "__members__", None)
    return ", ".join(f"`{choice.value}`" for choice in choices.values()) if choices else "JSON"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default()
    if value in (None, [], {}, ""):
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
