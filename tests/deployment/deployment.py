"""A deployment of docker-compose.yml in a folder of its own, at an address that only this machine has."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tests.deployment.engine import Engine
from tests.live import eventually

PROJECT = "trainwright-check"
HOST = "train.example.org"
ADDRESS = "198.18.83.1"
"""In a network that is reserved for tests of devices."""

SETTINGS = {
    # The keys of the store's stand-in have two parts.
    "TRAINWRIGHT_S3_ACCESS_KEY": "trainwright:server",
    "PROXY_TLS": "tls internal",
    "PUBLISH_HTTP": f"{ADDRESS}:80",
    "PUBLISH_HTTPS": f"{ADDRESS}:443",
    "PUBLISH_OBJECTS": f"{ADDRESS}:9443",
    "PUBLISH_HINTS": f"{ADDRESS}:6379",
    "ADDRESS": ADDRESS,
}

FIRST_ACCOUNT = """
import secrets, sys
from trainwright.client import Client
from trainwright.contracts.api.people import OneTimeLink
with Client(sys.argv[1]) as client:
    token = sys.argv[2].rsplit("/", 1)[-1]
    password = secrets.token_urlsafe(16)
    client.use_link(OneTimeLink(token=token, name="Ada", email="ada@example.org", password=password, team=sys.argv[3]))
    print(client.create_key("check").secret)
"""


@dataclass
class Deployment:
    """The containers of the compose file, started by podman-compose.

    Args:
        folder: a copy of the repository's files, with `.env`.
        user: the variables of a person who uses the command line.
    """

    engine: Engine
    folder: Path
    user: dict[str, str] = field(default_factory=dict)

    @cached_property
    def services(self) -> dict[str, Any]:
        """The services of the compose file, with the variables filled in."""
        shown = self.compose("--profile=cpu", "config").stdout
        services: dict[str, Any] = yaml.safe_load(shown)["services"]
        return services

    def compose(
        self, *words: object, check: bool = True, version: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run podman-compose; it starts the images of this version."""
        podman = Path(__file__).with_name("podman_for_compose")
        program = Path(sys.executable).with_name("podman-compose")
        files = [
            f"--file={name}" for name in ("docker-compose.yml", "tests/deployment/private-authority.yml")
        ]
        if not (self.folder / "authority.crt").exists():
            files.pop()
        command = [program, "--podman-path", podman, "--project-name", PROJECT, *files, *words]
        chosen = {} if version is None else {"TRAINWRIGHT_VERSION": version}
        command = ["env", "--chdir", self.folder, *command]
        return self.engine.run(*command, check=check, variables=chosen)

    def containers(self) -> dict[str, str]:
        """The state of each container, such as `running`, by its service and number."""
        found = json.loads(self.engine.podman("ps", "--all", "--format", "json"))
        return {item["Names"][0].removeprefix(f"{PROJECT}_"): item["State"] for item in found}

    def inspect(self, container: str) -> dict[str, Any]:
        return self.engine.inspect(f"{PROJECT}_{container}")

    def execute(self, container: str, *command: object, check: bool = True) -> str:
        return self.engine.podman("exec", f"{PROJECT}_{container}", *command, check=check)

    def is_healthy(self, container: str) -> bool:
        check = ("podman", "healthcheck", "run", f"{PROJECT}_{container}")
        return self.engine.run(*check, check=False).returncode == 0

    def crash(self, container: str) -> None:
        """Kill the container's processes without Podman's knowledge, and wait until it has restarted them."""
        killed = self.inspect(container)["State"]["Pid"]
        os.kill(killed, signal.SIGKILL)
        claim = f"{container} restarts"
        eventually(lambda: self.inspect(container)["State"]["Pid"] not in (0, killed), claim, 60)

    def with_hosts(self, *command: object) -> str:
        """The standard output of a program of this machine for which the server's name is in `/etc/hosts`."""
        hosts = self.folder / "hosts"
        hosts.write_text(f"{Path('/etc/hosts').read_text()}\n{ADDRESS} {HOST}\n")
        script = f'mount --bind "{hosts}" /etc/hosts && exec "$@"'
        variables = self.user | {"SSL_CERT_FILE": str(self.folder / "authority.crt")}
        return self.engine.run(
            "unshare", "--mount", "sh", "-c", script, "sh", *command, variables=variables
        ).stdout

    def cli(self, *words: object) -> str:
        """The standard output of the command line, over TLS."""
        return self.with_hosts(Path(sys.executable).with_name("trainwright"), *words)

    def cli_json(self, *words: object) -> Any:
        return json.loads(self.cli(*words, "--json"))

    def start(self) -> None:
        """Start all services but the node, and sign up."""
        self.compose("up", "--detach", "--no-build")
        eventually(lambda: self.is_healthy("proxy_1"), "the proxy is healthy", 60)
        root = "/certificates/caddy/pki/authorities/local/root.crt"
        (self.folder / "authority.crt").write_text(self.execute("proxy_1", "cat", root))
        link = self.execute("api_1", "trainwright-server", "link", "first-owner")
        server = {"TRAINWRIGHT_SERVER": f"https://{HOST}", "TRAINWRIGHT_TEAM": "crew"}
        key = self.with_hosts(sys.executable, "-c", FIRST_ACCOUNT, server["TRAINWRIGHT_SERVER"], link, "crew")
        self.user = server | {"TRAINWRIGHT_KEY": key.strip()}

    def start_node(self) -> None:
        token = self.execute("api_1", "trainwright-server", "join-token", "node")
        (self.folder / "join-token").write_text(token)
        self.compose("--profile=cpu", "up", "--detach", "--no-build", "cpu-node")
        eventually(
            lambda: any(node["online"] for node in self.cli_json("nodes", "list")),
            "the node joins",
            300,
        )


def copy_sources(repository: Path, folder: Path) -> None:
    """Copy the files that a clone with this machine's changes has."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (repository / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, folder / name)


def set_version(folder: Path, version: str) -> None:
    """Make these sources another version."""
    file = folder / "pyproject.toml"
    file.write_text(
        re.sub(r'^version = ".*"', f'version = "{version}"', file.read_text(), flags=re.MULTILINE)
    )


@contextmanager
def published_address() -> Iterator[None]:
    """Give this machine the deployment's address for the block."""
    interface = f"{ADDRESS}/32"
    subprocess.run(["ip", "address", "replace", interface, "dev", "lo"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "address", "delete", interface, "dev", "lo"], check=True)


def write_settings(folder: Path, settings: Mapping[str, str] = SETTINGS) -> None:
    """Write `.env` as an operator does, with these settings instead of those of the command."""
    command = [
        Path(sys.executable).with_name("trainwright-server"),
        "init",
        "--public-url",
        f"https://{HOST}",
    ]
    subprocess.run([*command, folder / ".env"], check=True, capture_output=True)
    file = folder / ".env"
    kept = [line for line in file.read_text().splitlines() if line.partition("=")[0] not in settings]
    file.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in settings.items())]) + "\n")
