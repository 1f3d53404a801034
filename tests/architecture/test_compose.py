"""The deployment for a fleet: no secret has a default, services are confined, and the commands they run exist."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from trainwright_agent.main import app as agent
from trainwright_backend.cli import app
from trainwright_backend.core.settings import Settings

PROGRAMS = {"trainwright-server": app, "trainwright-agent": agent}
UNITS = ["trainwright-api", "trainwright-worker", "trainwright-agent"]


def test_compose_refuses_to_start_without_the_required_settings(repository: Path) -> None:
    required = set(re.findall(r"^(\w+)=$", (repository / ".env.example").read_text(), re.MULTILINE))
    compose = (repository / "docker-compose.yml").read_text()
    refused_when_missing = set(re.findall(r"\$\{(\w+):\?", compose))
    with_default = set(re.findall(r"\$\{(\w+):-", compose))
    assert required
    assert refused_when_missing == required
    assert not with_default & required


def test_the_commands_of_the_containers_exist(repository: Path) -> None:
    words = [service["command"] for service in services_of(repository).values() if "command" in service]
    commands = [command[1:] for command in words if command[0] == "trainwright-server"]
    assert commands
    for command in [*commands, ["serve"], ["join-token"], ["link", "first-owner"]]:
        shown = CliRunner().invoke(app, [*command, "--help"])
        assert shown.exit_code == 0, f"trainwright-server {command}: {shown.output}"


def services_of(repository: Path) -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((repository / "docker-compose.yml").read_text())["services"]
    return services


def variables(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def init(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["init", *words])
    return done.exit_code, done.output


def test_init_writes_what_compose_requires_and_never_overwrites_it(repository: Path, tmp_path: Path) -> None:
    file, other = tmp_path / ".env", tmp_path / "other"
    assert init(str(file), "--public-url", "https://train.example.org/")[0] == 0
    written = variables(file.read_text())
    assert set(written) == set(variables((repository / ".env.example").read_text()))
    assert written["TRAINWRIGHT_PUBLIC_URL"] == "https://train.example.org"
    assert written["HINTS_HOST"] == written["PROXY_HOST"] == "train.example.org"
    assert written["TRAINWRIGHT_S3_PUBLIC_ENDPOINT"] == "https://train.example.org:9443"
    secret = {name: value for name, value in written.items() if name.endswith(("SECRET_KEY", "_PASSWORD"))}
    assert len(set(secret.values())) == 5 and all(
        re.fullmatch(r"[\w-]{64}", value) for value in secret.values()
    )
    Settings(secret_key=written["TRAINWRIGHT_SECRET_KEY"])
    assert file.stat().st_mode & 0o777 == 0o600

    before = file.read_text()
    code, said = init(str(file), "--public-url", "https://train.example.org")
    assert code == 1 and "exists" in said and file.read_text() == before
    assert init(str(other), "--public-url", "https://localhost", "--hints-host", "10.0.0.7")[0] == 0
    assert not set(secret.values()) & set(variables(other.read_text()).values())


def test_init_writes_complete_settings_of_an_identity_provider_and_refuses_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (str(tmp_path / ".env"), "--public-url", "https://train.example.org")
    monkeypatch.setenv("TRAINWRIGHT_OIDC_ISSUER", "https://login.example.org")
    monkeypatch.setenv("TRAINWRIGHT_OIDC_CLIENT_ID", "trainwright")
    code, said = init(*words)
    assert code == 1 and "TRAINWRIGHT_OIDC_CLIENT_SECRET is missing" in said
    groups = '{"ml": {"lab": "editor"}}'
    monkeypatch.setenv("TRAINWRIGHT_OIDC_CLIENT_SECRET", "a secret # $HOME")
    monkeypatch.setenv("TRAINWRIGHT_OIDC_GROUPS", groups)
    assert init(*words)[0] == 0
    written = variables((tmp_path / ".env").read_text())
    assert written["TRAINWRIGHT_OIDC_CLIENT_SECRET"] == "'a secret # $HOME'"
    assert written["TRAINWRIGHT_OIDC_GROUPS"] == f"'{groups}'"


def test_the_servers_get_every_setting_in_the_file(repository: Path) -> None:
    services = services_of(repository)
    for name in ("api", "worker", "migrate"):
        assert services[name]["env_file"] == [".env"], name


def test_every_service_is_confined(repository: Path) -> None:
    for name, service in services_of(repository).items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["pids_limit"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        ours = service["image"].startswith("trainwright-")  # their images have a user
        assert ours or service["user"] not in ("root", "0"), name
        ends_or_trains = service["restart"] == "no" or name in ("node", "cpu-node")
        assert ends_or_trains or service["mem_limit"], name
        assert re.search(r":[\w.${}:-]+$", service["image"]) and ":latest" not in service["image"], name


def test_the_images_have_the_current_version(repository: Path) -> None:
    version = importlib.metadata.version("trainwright")
    text = (repository / "docker-compose.yml").read_text()
    assert set(re.findall(r"TRAINWRIGHT_VERSION:-([\w.]+)", text)) == {version}
    dockerfile = (repository / "infra" / "docker" / "Dockerfile").read_text()
    assert set(re.findall(r"-t trainwright-\w+:([\w.]+)", dockerfile)) == {version}
    targets = {
        service["build"]["target"] for service in services_of(repository).values() if "build" in service
    }
    assert targets == {"server", "agent"} <= set(re.findall(r"^FROM \w+ AS (\w+)", dockerfile, re.MULTILINE))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("train.example.org", "not the address of a server"),
        ("https://", "not the address of a server"),
        ("https://train.example.org:port", "not the address of a server"),
        ("https://train.example.org/path", "not the address of a server"),
        ("http://train.example.org", "plain http"),
        ("http://localhost:8000", "plain http"),
    ],
)
def test_init_refuses_an_address_that_cannot_work(tmp_path: Path, address: str, words: str) -> None:
    code, said = init(str(tmp_path / ".env"), "--public-url", address)
    assert code == 1 and words in said.replace("\n", " ")
    assert not (tmp_path / ".env").exists()


@pytest.mark.parametrize("name", UNITS)
def test_the_commands_of_the_units_exist(repository: Path, name: str) -> None:
    unit = (repository / "infra" / "systemd" / f"{name}.service").read_text()
    commands = re.findall(r"^ExecStart(?:Pre)?=/opt/trainwright/bin/(\S+) (\S+)(.*)$", unit, re.MULTILINE)
    assert commands
    for program, command, options in commands:
        shown = CliRunner(env={"COLUMNS": "200"}).invoke(PROGRAMS[program], [command, "--help"])
        assert shown.exit_code == 0, shown.output
        assert all(option in shown.stdout for option in re.findall(r"--\S+", options))


if shutil.which("systemd-analyze"):  # Linux without systemd has no tool that verifies units

    @pytest.mark.parametrize("name", UNITS)
    def test_systemd_accepts_the_units_and_finds_them_confined(
        repository: Path, tmp_path: Path, name: str
    ) -> None:
        unit = (repository / "infra" / "systemd" / f"{name}.service").read_text()
        file = tmp_path / f"{name}.service"
        file.write_text(re.sub(r"/opt/trainwright/bin/\S+", sys.executable, unit))
        for check in (["verify"], ["security", "--offline=true", "--threshold=30"]):
            done = subprocess.run(["systemd-analyze", *check, file], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
