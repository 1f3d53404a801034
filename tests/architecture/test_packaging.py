"""The distribution has its four packages and commands, and the lock files have what it declares."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCKS = {
    "runtime.txt": ["backend", "agent", "trainer"],
    "dev.txt": ["backend", "agent", "trainer", "dev"],
}


def test_the_wheel_has_the_four_packages_and_the_commands(repository: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=repository, check=True, capture_output=True)
    [path] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        [commands] = [wheel.read(name).decode() for name in names if name.endswith("entry_points.txt")]

    packages = {"trainwright", "trainwright_backend", "trainwright_agent", "trainwright_trainer"}
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == packages
    assert any(name.endswith("licenses/LICENSE") for name in names)
    for command in ("trainwright", "trainwright-server", "trainwright-agent"):
        assert re.search(rf"^{command} = ", commands, re.MULTILINE)


def test_the_readme_installs_the_current_version(repository: Path) -> None:
    version = importlib.metadata.version("trainwright")
    wheels = re.findall(r"trainwright-([\w.]+)-py3-none-any\.whl", (repository / "README.md").read_text())
    assert wheels and set(wheels) == {version}


@pytest.mark.parametrize("command", ["trainwright", "trainwright-server", "trainwright-agent"])
def test_a_command_is_installed_and_has_the_version(command: str) -> None:
    program = Path(sys.executable).with_name(command)
    shown = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == f"trainwright {importlib.metadata.version('trainwright')}\n"


@pytest.mark.parametrize(("lock", "extras"), LOCKS.items(), ids=LOCKS)
def test_a_lock_pins_and_hashes_all_declared_packages(lock: str, extras: list[str], repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"]]
    for extra in extras:
        declared += project["optional-dependencies"][extra]
    pinned = pins(repository / "requirements" / lock)

    for line in declared:
        requirement = Requirement(line)
        if requirement.name == "torch":
            continue
        versions = pinned.get(canonicalize_name(requirement.name), [])
        assert versions, f"{requirement.name} is not locked: make lock"
        assert all(requirement.specifier.contains(version) for version in versions), line
    assert "torch" not in pinned


def test_every_package_of_the_pages_has_its_digest_in_the_lock(repository: Path) -> None:
    packages = json.loads((repository / "frontend" / "package-lock.json").read_text())["packages"]
    without = [path for path, package in packages.items() if path and "integrity" not in package]
    assert without == [], "npm adds digests only to packages that it downloads anew, not to installed ones"


def test_the_installed_versions_are_the_locked_ones(repository: Path) -> None:
    for name, versions in pins(repository / "requirements" / "runtime.txt").items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # its marker names another platform
        assert installed in versions, f"{name} {installed} is installed, {versions} is locked: make setup"


def test_setup_installs_no_development_tools_and_names_the_next_command(repository: Path) -> None:
    planned = recipes(repository, "setup", "frontend")
    assert "infra/venv.sh runtime" in planned and "infra/venv.sh dev" not in planned
    assert planned.splitlines()[-1] == 'echo "Next: .venv/bin/trainwright-server up"'
    assert "make frontend" in recipes(repository, "setup")


@pytest.mark.parametrize("target", ["test", "check", "faults", "browsers", "dev"])
def test_targets_that_need_development_tools_install_them(target: str, repository: Path) -> None:
    assert "infra/venv.sh dev" in recipes(repository, target)


def recipes(repository: Path, *targets: str) -> str:
    """The commands that make would run in a fresh checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", "--always-make", *targets]
    done = subprocess.run(
        command, cwd=repository, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.rstrip()


def pins(lock: Path) -> dict[str, list[str]]:
    """Versions by name, one or more where the lock forks by Python version; each must carry a hash."""
    found: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=\S)", lock.read_text()):
        if entry.startswith("#") or not entry.strip():
            continue
        match = re.match(r"([A-Za-z0-9._-]+)==([^ ;]+)", entry)
        assert match, f"not a pin: {entry}"
        assert "--hash=sha256:" in entry, f"not hashed: {entry}"
        found.setdefault(canonicalize_name(match[1]), []).append(match[2])
    return found
