"""`make release` refuses a commit that is not ready, and says what to do."""

import json
import subprocess
from pathlib import Path

import pytest

from infra.release import digests, git, page_packages, why_not_ready

CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 0.3.0 (2026-12-01)\n\n- More.\n"


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A repository whose commit can be released as 0.3.0."""
    (tmp_path / "frontend").mkdir()
    (tmp_path / "frontend" / "package.json").write_text('{"version": "0.3.0"}')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(
        root,
        "-c",
        "user.name=Ada",
        "-c",
        "user.email=ada@acme.example",
        "commit",
        "--quiet",
        "--message",
        "more",
    )


def test_a_ready_commit_may_have_its_tag(ready: Path) -> None:
    assert why_not_ready(ready, "0.3.0") == []
    git(ready, "tag", "v0.3.0")
    assert why_not_ready(ready, "0.3.0") == []


def test_a_version_is_released_once(ready: Path) -> None:
    git(ready, "tag", "v0.3.0")
    (ready / "more").touch()
    commit(ready)
    assert why_not_ready(ready, "0.3.0") == ["The tag v0.3.0 is at another commit: increase the version."]


def test_uncommitted_changes_are_named(ready: Path) -> None:
    (ready / "more").touch()
    assert why_not_ready(ready, "0.3.0") == ["Commit or remove these changes first:\n?? more"]


def test_other_versions_than_that_of_the_project_are_named(ready: Path) -> None:
    assert why_not_ready(ready, "0.3.1") == [
        "frontend/package.json has version 0.3.0, and pyproject.toml 0.3.1: make them equal.",
        "CHANGELOG.md has no section `## 0.3.1 (YYYY-MM-DD)`: rename `## Unreleased`.",
    ]


def test_a_release_contains_all_listed_changes(ready: Path) -> None:
    (ready / "CHANGELOG.md").write_text(
        CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n- Even more.\n")
    )
    commit(ready)
    assert why_not_ready(ready, "0.3.0") == [
        "CHANGELOG.md lists changes as unreleased: move them to the section of 0.3.0."
    ]


def test_digests_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "wheel").write_bytes(b"w")
    (tmp_path / "sources").write_bytes(b"s")
    (tmp_path / "SHA256SUMS").write_text(digests(tmp_path))
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).stdout == b"sources: OK\nwheel: OK\n"
    (tmp_path / "wheel").write_bytes(b"x")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


def test_the_packages_of_the_pages_are_those_that_are_not_only_tools(repository: Path) -> None:
    lock = json.loads((repository / "frontend" / "package-lock.json").read_text())
    own = json.loads((repository / "frontend" / "package.json").read_text())
    listed = page_packages(lock)["components"]
    names = {component["name"] for component in listed}
    assert own["dependencies"].keys() <= names
    assert {"vite", "eslint", "@playwright/test"}.isdisjoint(names)
    [react] = [component for component in listed if component["name"] == "react"]
    assert react["purl"] == f"pkg:npm/react@{react['version']}"
    assert [(one["alg"], len(one["content"])) for one in react["hashes"]] == [("SHA-512", 128)]
    assert react["licenses"] == [{"expression": "MIT"}]
    assert len({component["bom-ref"] for component in listed}) == len(listed)
