"""DeepSpeed is imported in one file, so that everything works without it."""

import ast
from pathlib import Path

import pytest

ITS_FILE = "trainer/trainwright_trainer/training/deepspeed_engine.py"


def test_deepspeed_is_imported_in_one_file(repository: Path) -> None:
    files = [path for folder in ("sdk", "backend", "trainer") for path in (repository / folder).rglob("*.py")]
    found = [str(path.relative_to(repository)) for path in files if imports_deepspeed(path.read_text())]
    assert found == [ITS_FILE]


@pytest.mark.parametrize(
    "planted",
    [
        "import deepspeed",
        "import deepspeed.ops.adam as ops",
        "def f():\n    from deepspeed.utils import safe_get_full_grad",
        "import importlib\nimportlib.import_module('deepspeed')",
        "__import__('deepspeed.comm')",
    ],
)
def test_an_injected_import_is_found(planted: str) -> None:
    assert imports_deepspeed(planted)


def imports_deepspeed(source: str) -> bool:
    """Imports by a string, as for ``importlib``, count too."""
    return any(_is_deepspeed(name) for node in ast.walk(ast.parse(source)) for name in _imported(node))


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    if isinstance(node, ast.Call):
        return [
            given.value
            for given in node.args
            if isinstance(given, ast.Constant)
            and isinstance(given.value, str)
            and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
        ]
    return []


def _is_deepspeed(name: str) -> bool:
    return name.partition(".")[0] == "deepspeed"
