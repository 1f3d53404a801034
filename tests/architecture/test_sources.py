"""Our sources contain no way to run foreign code, and no host of a package registry."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE_FOLDERS = ("sdk", "backend", "trainer")

UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "torch.load", "torch.save", "torch.hub.load"}
UNSAFE_ARGUMENTS = {"shell", "allow_pickle", "trust_remote_code"}

# Joined here so that this file does not contain what it searches for.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("download", "pytorch", "org"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("deb", "debian", "org"),
    ]
)


def test_our_packages_run_no_foreign_code(repository: Path) -> None:
    files = [path for folder in PACKAGE_FOLDERS for path in (repository / folder).rglob("*.py")]
    assert files
    found = [f"{path.relative_to(repository)}:{what}" for path in files for what in unsafe(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    "planted",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "model = make(name, trust_remote_code=True)",
        "import numpy\nnumpy.load('x', allow_pickle=True)",
        "eval('1')",
        "options = {'trust_remote_code': True}",
    ],
)
def test_an_injected_way_to_run_foreign_code_is_found(planted: str) -> None:
    assert list(unsafe(planted))


def test_no_file_names_a_registry_host(repository: Path) -> None:
    """The machine chooses the package registry, not the project."""
    named = [
        f"{path.relative_to(repository)}: {host}"
        for path in project_files(repository)
        for text in [path.read_bytes()]
        for host in REGISTRY_HOSTS
        if host.encode() in text
    ]
    assert named == []


def test_commands_never_print_text_as_markup(repository: Path) -> None:
    """Consoles and tables are those of `commands/terminal.py`, which show brackets in people's text as they are."""
    sdk = repository / "sdk" / "trainwright"
    files = [path for path in sdk.rglob("*.py") if path != sdk / "commands" / "terminal.py"]
    found = [f"{path.relative_to(sdk)}:{what}" for path in files for what in markup(path.read_text())]
    assert files and found == []


@pytest.mark.parametrize(
    "planted",
    [
        "from rich.table import Table",
        "from rich import print",
        "from rich.markup import escape",
        "import rich",
        "out = Console()",
        "out.print(name, markup=True)",
    ],
)
def test_injected_markup_is_found(planted: str) -> None:
    assert list(markup(planted))


def markup(source: str) -> Iterator[str]:
    """Line and code of everything in ``source`` that could interpret text as markup."""
    harmless = {("rich.table", "Column"), ("rich.console", "Console")}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                suspect = any(alias.name.partition(".")[0] == "rich" for alias in names)
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "rich":
                suspect = any((module, alias.name) not in harmless for alias in names)
            case ast.Call(func=func, keywords=keywords):
                suspect = ast.unparse(func) == "Console" or any(one.arg == "markup" for one in keywords)
            case _:
                suspect = False
        if suspect:
            yield f"{node.lineno}: {ast.unparse(node)}"


def unsafe(source: str) -> Iterator[str]:
    """Line and name of every import, call, argument or key in ``source`` that could run foreign code."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                words = {alias.name.partition(".")[0] for alias in names} & UNSAFE_MODULES
            case ast.ImportFrom(module=str(module), names=names):
                words = {module.partition(".")[0]} & UNSAFE_MODULES
                words |= {f"{module}.{alias.name}" for alias in names} & UNSAFE_CALLS
            case ast.Call(func=func, keywords=keywords):
                words = {ast.unparse(func)} & UNSAFE_CALLS
                words |= {
                    word.arg for word in keywords if word.arg and not is_false(word.value)
                } & UNSAFE_ARGUMENTS
            case ast.Constant(value="trust_remote_code"):
                words = {"trust_remote_code"}
            case _:
                continue
        yield from (f"{node.lineno}: {word}" for word in sorted(words))


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def project_files(root: Path) -> list[Path]:
    """All files of the project: what git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return [path for name in names.split("\0") if name and (path := root / name).is_file()]
