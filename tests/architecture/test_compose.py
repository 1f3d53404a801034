"""The deployment for a fleet: no secret has a default, and the commands it runs exist."""

import re
from pathlib import Path

import yaml
from typer.testing import CliRunner

from trainwright_backend.cli import app


def test_compose_refuses_to_start_without_the_required_settings(repository: Path) -> None:
    required = set(re.findall(r"^(\w+)=$", (repository / ".env.example").read_text(), re.MULTILINE))
    compose = (repository / "docker-compose.yml").read_text()
    refused_when_missing = set(re.findall(r"\$\{(\w+):\?", compose))
    with_default = set(re.findall(r"\$\{(\w+):-", compose))
    assert required
    assert refused_when_missing == required
    assert not with_default & required


def test_the_commands_of_the_containers_exist(repository: Path) -> None:
    services = yaml.safe_load((repository / "docker-compose.yml").read_text())["services"]
    words = [service["command"] for service in services.values() if "command" in service]
    commands = {command[1] for command in words if command[0] == "trainwright-server"} | {
        "serve",
        "join-token",
    }
    for command in commands:
        shown = CliRunner().invoke(app, [command, "--help"])
        assert shown.exit_code == 0, f"trainwright-server {command}: {shown.output}"
