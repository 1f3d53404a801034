"""A Debian machine whose init is systemd, in a container: a server and a node, installed by the commands of the documentation."""

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deployment.deployment import FIRST_ACCOUNT, HOST
from tests.deployment.engine import Engine
from tests.deployment.images import AUTHORITIES, PREFIX, package_options
from tests.live import eventually

IMAGE = f"{PREFIX}/systemd"
NAME = "trainwright-systemd-check"
SOURCES = Path("/root/trainwright")
"""Where the machine has the wheel and `infra/`, as after `make wheel` in a clone."""

PYTHON = "/opt/trainwright/bin"


@dataclass
class Machine:
    """The container, and the person who uses the server.

    Args:
        folder: the files of `SOURCES`.
        user: variables of the person's command line.
    """

    engine: Engine
    folder: Path
    user: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        """Boot it. Its services are those of Debian's packages."""
        self.remove()
        # The machine has authorities of its own, to which the test adds the proxy's.
        options = [option for option in package_options(self.engine) if f":{AUTHORITIES}:" not in option]
        self.engine.podman(
            *("run", "--detach", "--name", NAME, "--hostname", "train", "--add-host", f"{HOST}:127.0.0.1"),
            *("--privileged", "--systemd=always", f"--volume={self.folder}:{SOURCES}"),
            *options,
            IMAGE,
        )
        self._wait_for_boot()

    def reboot(self) -> None:
        self.engine.podman("restart", NAME)
        self._wait_for_boot()

    def remove(self) -> None:
        self.engine.podman("rm", "--force", "--ignore", "--volumes", NAME)

    def shell(self, script: str, *, check: bool = True) -> str:
        """The standard output of a script that runs as root in `SOURCES`. It fails with the script's output."""
        return self.engine.podman("exec", "--workdir", SOURCES, NAME, "bash", "-ec", script, check=check)

    def install(self, script: str) -> None:
        """Run a script that installs packages: the container has no network to get them from, so it uses this machine's."""
        process = self.engine.podman("inspect", "--format", "{{.State.Pid}}", NAME)
        namespaces = ("--mount", "--pid", "--uts", "--ipc", "--root")
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        constraints = self.folder / "constraints.txt"
        constraints.write_text(f"torch=={os.environ.get('TORCH_VERSION') or '2.13.0'}\n")
        variables = [path, "HOME=/root", f"PIP_CONSTRAINT={SOURCES}/{constraints.name}"]
        if AUTHORITIES.exists():
            shutil.copy(AUTHORITIES, self.folder)
            variables.append(f"PIP_CERT={SOURCES}/{AUTHORITIES.name}")
        index = os.environ.get("TORCH_INDEX")
        variables += [f"PIP_EXTRA_INDEX_URL={index}"] if index else []
        script = f"cd {SOURCES}\n" + script.replace("sudo ", "sudo --preserve-env ")
        command = ("env", "-i", *variables, "bash", "-ec", script)
        self.engine.run("nsenter", f"--target={process}", *namespaces, *command)

    def cli(self, *words: object) -> str:
        """The standard output of the command line, over TLS."""
        variables = [f"{name}={value}" for name, value in self.user.items()]
        return self.shell(shlex.join(["env", *variables, f"{PYTHON}/trainwright", *map(str, words)]))

    def cli_json(self, *words: object) -> Any:
        return json.loads(self.cli(*words, "--json"))

    def sign_up(self, link: str) -> None:
        """Make the first account with the link of the documentation's command."""
        server = {"TRAINWRIGHT_SERVER": f"https://{HOST}", "TRAINWRIGHT_TEAM": "crew"}
        command = [f"{PYTHON}/python", "-c", FIRST_ACCOUNT, server["TRAINWRIGHT_SERVER"], link, "crew"]
        self.user = server | {"TRAINWRIGHT_KEY": self.shell(shlex.join(command))}

    def restart(self, unit: str) -> None:
        self.shell(f"systemctl restart {unit}")

    def crash(self, unit: str) -> None:
        """Kill the unit's main process, and wait until systemd has started another."""
        killed = self._main_process(unit)
        self.shell(f"kill -KILL {killed}")
        eventually(lambda: self._main_process(unit) not in (0, killed), f"{unit} starts again", 30)

    def is_serving(self) -> bool:
        """Whether the API responds through the proxy."""
        address = f"https://{HOST}/api/v1/health"
        script = f"import httpx; httpx.get({address!r}, verify=False).raise_for_status()"
        return (
            self.shell(f"{PYTHON}/python -c {shlex.quote(script)} 2>/dev/null && echo yes", check=False)
            == "yes"
        )

    def is_active(self, units: Sequence[str]) -> bool:
        states = self.shell(f"systemctl is-active {' '.join(units)}", check=False).split()
        return states == ["active"] * len(units)

    def log(self, unit: str) -> str:
        """The end of a unit's journal, for messages of failures."""
        return self.shell(f"journalctl --unit {unit} --lines 30 --no-pager", check=False)

    def _main_process(self, unit: str) -> int:
        return int(self.shell(f"systemctl show --property=MainPID --value {unit}"))

    def _wait_for_boot(self) -> None:
        done = ("running", "degraded")
        eventually(
            lambda: self.shell("systemctl is-system-running", check=False) in done, "systemd has started", 90
        )
