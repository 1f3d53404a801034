"""What all commands share: the files that they read."""

from pathlib import Path

import pytest

from tests.backend.runs.conftest import Served, key_of
from tests.backend.scripted_agent import Scene


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def key(scene: Scene) -> str:
    return key_of(scene.site.admin)


@pytest.fixture
def spec(scene: Scene, tmp_path: Path) -> Path:
    """A spec as the page of a new run writes it."""
    path = tmp_path / "form.yaml"
    path.write_text(
        f"# Fields that are left out keep their defaults.\nname: pilot\ndata:\n  dataset: {scene.dataset}\n"
        "schedule:\n  steps: 10\nresources:\n  device: cpu\n"
    )
    return path


def test_the_yaml_of_the_page_is_checked_and_submitted(served: Served, key: str, spec: Path) -> None:
    for command in ("runs check", "estimate", "plan", "recipes save pilot", "runs submit"):
        done = served.command(key, f"{command} {spec}")
        assert done.exit_code == 0, done.output
    spec.write_text("name: pilot\nname: again\n")
    refused = served.command(key, f"runs check {spec}")
    assert refused.stderr.startswith(f"{spec}: line 2: the key 'name' appears twice")
