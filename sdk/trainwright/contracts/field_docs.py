"""Descriptions of fields in JSON schemas, from the strings below the fields.

Pydantic's `use_attribute_docstrings` reads them while it creates classes, which takes a quarter of the server's start. This
module reads them when a schema is generated.
"""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Documented(BaseModel):
    """A model in whose JSON schema the string below a field is the field's description."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties: dict[str, dict[str, Any]] = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docs(cls).items():
            shown = properties.get(name)
            if shown is not None:
                shown.setdefault("description", text)
        return schema


def field_docs(model: type) -> dict[str, str]:
    """The strings below the fields of a class and of its bases, by the names of the fields."""
    docs: dict[str, str] = {}
    for base in reversed(model.__mro__):
        docs |= _docs_of_module(base.__module__).get(base.__qualname__, {})
    return docs


@cache
def _docs_of_module(module: str) -> dict[str, dict[str, str]]:
    """The strings below the fields of each class of a module; none if there is no source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    return dict(_docs_of_classes(tree.body, ""))


def _docs_of_classes(body: list[ast.stmt], outer: str) -> list[tuple[str, dict[str, str]]]:
    found = []
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            name = outer + statement.name
            found.append((name, _docs_of_fields(statement.body)))
            found.extend(_docs_of_classes(statement.body, f"{name}."))
    return found


def _docs_of_fields(body: list[ast.stmt]) -> dict[str, str]:
    docs = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    docs[field.target.id] = inspect.cleandoc(text)
    return docs
