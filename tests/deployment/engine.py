"""Podman and buildah with settings of their own: no image, container or network of this machine is touched."""

import json
import os
import resource
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MAX_PROCESSES = 9_000


@dataclass(frozen=True)
class Engine:
    """Podman and buildah whose images stay in ``folder``."""

    folder: Path

    @classmethod
    def of_checks(cls) -> "Engine":
        """The engine whose images all checks of deployments share."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cls(cache / "trainwright" / "compose-check")

    @cached_property
    def environment(self) -> dict[str, str]:
        """This process's variables, and the files with the engine's settings, which are written here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        storage, containers = self.folder / "storage.conf", self.folder / "containers.conf"
        storage.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{self.folder}/graph"\nrunroot = "{self.folder}/run"\n'
        )
        files, processes = (
            resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)
        )
        if processes == resource.RLIM_INFINITY or processes > MAX_PROCESSES:
            processes = MAX_PROCESSES
        containers.write_text(
            # Podman's own limits are higher than those that a process without all capabilities can set.
            f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]\n'
            f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{self.folder}/networks"\n'
            '[engine]\nruntime = "runc"\nevents_logger = "file"\n'
        )
        return os.environ | {
            "CONTAINERS_STORAGE_CONF": str(storage),
            "CONTAINERS_CONF": str(containers),
            "BUILDAH_ISOLATION": "chroot",
        }

    def run(
        self, *command: object, check: bool = True, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with the engine's settings; fails with its output."""
        done = subprocess.run(
            list(map(str, command)),
            env=self.environment | dict(variables or {}),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert not check or done.returncode == 0, f"{command}\n{done.stdout[-3_000:]}{done.stderr[-3_000:]}"
        return done

    def podman(self, *words: object, check: bool = True) -> str:
        return self.run("podman", *words, check=check).stdout.strip()

    def inspect(self, name: str) -> dict[str, object]:
        found: list[dict[str, object]] = json.loads(self.podman("inspect", name))
        return found[0]

    def has_image(self, tag: str) -> bool:
        return self.run("podman", "image", "exists", tag, check=False).returncode == 0

    def build(self, tag: str, containerfile: Path, context: Path, *options: object) -> None:
        """Build an image on the machine's network. Its layers are used again."""
        self.run(
            *("nice", "-n", 10, "buildah", "bud", "--layers", "--pull-never", "--network", "host"),
            *("--file", containerfile, "--tag", tag, *options, context),
        )
