"""The images that docker-compose.yml names, built without a registry of images.

Ours are built from their Dockerfile. Those of others are replaced by stand-ins under the same tags: the same programs, or one with the
same protocol, from Debian. `stand_ins/` has a Containerfile for each, named as the image.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.deployment.engine import Engine

STAND_INS = Path(__file__).with_name("stand_ins")
DEBIAN = "bookworm"
"""The newest Debian whose Python the platform supports."""

PREFIX = "localhost/trainwright-check"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


def build_stand_ins(engine: Engine, repository: Path, services: Mapping[str, Any]) -> None:
    """Build a stand-in for each image that is not ours."""
    install_debian(engine)
    dockerfile = (repository / "infra" / "docker" / "Dockerfile").read_text()
    # Python before Node.js, whose stand-in is built on it.
    bases = sorted(set(re.findall(r"^FROM (\S+:\S+)", dockerfile, re.MULTILINE)), reverse=True)
    others = sorted({service["image"] for service in services.values() if "build" not in service})
    for image in [*bases, *(image for image in others if not image.startswith("trainwright-"))]:
        name = image.rpartition("/")[2].partition(":")[0]
        tags = ["--tag", f"{PREFIX}/{name}", "--ignorefile", "/dev/null"]
        options = package_options(engine) if name == "node" else []
        engine.build(f"localhost/{image}", STAND_INS / f"{name}.Containerfile", repository, *tags, *options)


def build_ours(engine: Engine, source: Path, service: Mapping[str, Any], version: str) -> None:
    """Build the image of a service as its section `build` says."""
    section = service["build"]
    image = service["image"].partition(":")[0]
    dockerfile = source / section["dockerfile"]
    # podman-compose shows them as a list, whatever the file has.
    arguments = [f"--build-arg={argument}" for argument in section.get("args", [])]
    options = ["--target", section["target"], *arguments, *package_options(engine)]
    engine.build(f"localhost/{image}:{version}", dockerfile, source / section["context"], *options)


def package_options(engine: Engine) -> list[str]:
    """Mounts that give a build this machine's configuration of pip, and none of it to the image."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    settings = dict(re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    paths = {AUTHORITIES}
    for word in " ".join(settings.values()).replace("\\n", " ").split():
        if re.match(r"(file://)?/", word):
            path = Path(word.removeprefix("file://"))
            paths.add(path.parent if path.name == "simple" else path)  # an index's files are beside its pages
    configuration = engine.folder / "pip.conf"
    lines = [f"{name} = {value}\n".replace("\\n", " ") for name, value in settings.items()]
    configuration.write_text("".join(["[global]\n", *lines]))
    mounts = [f"{path}:{path}:ro" for path in sorted(paths) if path.exists()]
    return [f"--volume={mount}" for mount in [*mounts, f"{configuration}:/etc/pip.conf:ro"]]


def install_debian(engine: Engine) -> None:
    """Make the image of Debian, unless there is one."""
    if engine.has_image(f"{PREFIX}/debian"):
        return
    root = engine.folder / "debian"
    shutil.rmtree(root, ignore_errors=True)
    engine.run(
        *("unshare", "--mount", "debootstrap", "--variant=minbase", "--include=ca-certificates", DEBIAN, root)
    )
    # The images need not survive a power failure while they are built.
    (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
    archive = engine.folder / "debian.tar"
    engine.run("tar", "--create", "--file", archive, "--directory", root, ".")
    engine.run("podman", "import", archive, f"{PREFIX}/debian")
    archive.unlink()
    shutil.rmtree(root)
