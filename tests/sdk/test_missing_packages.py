"""Installed without its extra, a command says what to install instead of a traceback."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest


def entry_point(repository: Path, command: str) -> tuple[str, str]:
    """Module and function of an installed command."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"][command].partition(":")
    return module, function


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("trainwright-server", "uvicorn"),
        ("trainwright-server", "sqlalchemy"),
        ("trainwright-agent", "psutil"),
    ],
)
def test_a_command_without_its_packages_names_what_to_install(
    repository: Path, command: str, missing: str
) -> None:
    module, function = entry_point(repository, command)
    absent = f"import sys; sys.modules[{missing!r}] = None; sys.argv = [{command!r}, '--help']; "
    code = f"{absent}from {module} import {function} as main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"{command} needs the package {missing}" in done.stderr
    assert "pip install 'trainwright[all]'" in done.stderr


def test_a_defect_of_ours_is_not_hidden(repository: Path) -> None:
    module, function = entry_point(repository, "trainwright-server")
    code = f"import sys; sys.modules['trainwright_backend.cli'] = None; from {module} import {function} as main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" in done.stderr
