"""The deployment with systemd works: the commands of docs/operations.md install a server and a node on a Debian machine.

The node trains in FP8, while services are restarted and killed, upgraded, and the machine is booted again. The tests of this file
continue from one another, in order.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment.deployment import HOST, copy_sources, set_version
from tests.deployment.engine import Engine
from tests.deployment.images import install_debian
from tests.deployment.machine import IMAGE, SOURCES, Machine
from tests.deployment.training import Training, start_training
from tests.docs.pages import Block, read_blocks
from tests.live import eventually

pytestmark = [pytest.mark.slow(target="systemd-check"), pytest.mark.timeout(2_400)]

PAGE = "docs/operations.md"
SERVER = ["trainwright-api", "trainwright-worker"]
AGENT = "trainwright-agent"
PASSWORD = "a-password-of-this-test"
NEXT_VERSION = "99.0.0"


@pytest.fixture(scope="module")
def machine(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with a database and two brokers, which has this version's wheel and units."""
    engine = Engine.of_checks()
    install_debian(engine)
    folder = tmp_path_factory.mktemp("machine")
    (folder / "empty").mkdir()
    engine.build(IMAGE, Path(__file__).parent / "systemd" / "Containerfile", folder / "empty")
    shutil.copytree(repository / "infra", folder / "infra")
    build_wheel(repository, folder)
    machine = Machine(engine, folder)
    machine.start()
    try:
        machine.shell(DATABASE_AND_BROKERS)
        yield machine
    finally:
        machine.remove()


DATABASE_AND_BROKERS = f"""
cd /
sudo -u postgres psql --quiet --command "CREATE ROLE trainwright LOGIN PASSWORD '{PASSWORD}'" \\
  --command "CREATE DATABASE trainwright OWNER trainwright"
echo 'requirepass {PASSWORD}' >> /etc/redis/redis.conf
sed -e 's/^port .*/port 6380/' -e 's/redis-server\\./redis-server-tasks./' /etc/redis/redis.conf > /etc/redis/redis-tasks.conf
chown redis:redis /etc/redis/redis-tasks.conf
systemctl enable --now redis-server@tasks
systemctl restart redis-server
"""


def build_wheel(repository: Path, folder: Path, version: str | None = None) -> None:
    """Build the wheel with the pages, of this version or another one, in ``folder``."""
    sources = folder / f"sources-{version or 'current'}"
    copy_sources(repository, sources)
    pages = "backend/trainwright_backend/static"
    shutil.copytree(repository / pages, sources / pages)
    if version is not None:
        set_version(sources, version)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=sources, check=True, capture_output=True)
    shutil.rmtree(sources)


def section(repository: Path, name: str) -> list[Block]:
    """The blocks of a section of the page."""
    return [block for block in read_blocks(PAGE, (repository / PAGE).read_text()) if block.section == name]


def filled(text: str, *values: str) -> str:
    """The text with its placeholders replaced, in order."""
    assert text.count("…") == len(values), text
    return "".join(part + value for part, value in zip(text.split("…"), [*values, ""], strict=True))


def with_version(version: str, text: str) -> str:
    return re.sub(r"trainwright-[\d.]+-py3", f"trainwright-{version}-py3", text)


def test_the_commands_of_the_page_start_a_server(machine: Machine, repository: Path) -> None:
    install, settings, start, proxy, _ = section(repository, "With systemd")
    machine.install(install.text)
    key = machine.shell(settings.text.splitlines()[0].removeprefix("# "))
    written = filled(settings.text, key, *[PASSWORD] * 4)
    assert HOST in written and HOST in proxy.text
    machine.shell(
        f"install --directory /etc/trainwright\ncat > /etc/trainwright/server.env <<'END'\n{written}END\n"
        "chmod 600 /etc/trainwright/server.env"
    )
    link = machine.shell(start.text).splitlines()[-1]
    assert link.startswith(f"https://{HOST}/link/")
    assert machine.is_active(SERVER), [machine.log(unit) for unit in SERVER]
    own_authority = proxy.text.replace("{\n", "{\n\ttls internal\n", 1)
    machine.shell(f"cat > /etc/caddy/Caddyfile <<'END'\n{own_authority}END\nsystemctl restart caddy")
    authority = "/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt"
    eventually(lambda: machine.shell(f"ls {authority}", check=False), "the proxy has an authority", 30)
    machine.shell(f"cp {authority} /usr/local/share/ca-certificates/train.crt && update-ca-certificates")
    machine.sign_up(link)
    assert machine.cli_json("runs", "list") == []


def test_the_commands_of_the_page_start_a_node(machine: Machine, repository: Path) -> None:
    *_, as_service = [block for block in section(repository, "Adding a node") if "systemctl" in block.text]
    lines = [line for line in as_service.text.splitlines() if "useradd" not in line and "venv" not in line]
    text = "\n".join(lines) + "\n"
    before, pip, after = re.split(r"(^.*pip install.*\n)", text, maxsplit=1, flags=re.MULTILINE)
    machine.install(pip)
    token = machine.shell(server_command(repository, "join-token gpu-07")).splitlines()[-1]
    machine.shell(before + filled(after, token))
    eventually(
        lambda: [node["online"] for node in machine.cli_json("nodes", "list")] == [True],
        "the node joins",
        300,
    )
    assert machine.is_active([AGENT]), machine.log(AGENT)


def server_command(repository: Path, command: str) -> str:
    """The page's way to run a command with the server's settings."""
    start = section(repository, "With systemd")[2].text
    assert start.count("link first-owner") == 1
    return start[start.index("sudo systemd-run") :].replace("link first-owner", command)


@pytest.fixture(scope="module")
def training(machine: Machine) -> Training:
    return start_training(machine, machine.folder, SOURCES)


def test_a_run_survives_restarts_and_crashes_of_each_unit(machine: Machine, training: Training) -> None:
    training.advances("before any restart", 300)
    for unit in (*SERVER, AGENT):
        for disturbance in (machine.restart, machine.crash):
            disturbance(unit)
            eventually(machine.is_serving, f"the API responds after the {disturbance.__name__} of {unit}", 60)
            training.advances(f"after the {disturbance.__name__} of {unit}")
            assert machine.is_active([unit]), machine.log(unit)
    assert training.show()["attempt"] == 1, "it never left its node"
    upload_another(machine, "after the crashes")


def upload_another(machine: Machine, name: str) -> None:
    """A dataset with a document of its own, which the worker must read."""
    (machine.folder / "another.txt").write_text(f"{name}\n")
    machine.cli("datasets", "upload", name, SOURCES / "another.txt")


def test_a_run_survives_an_upgrade(machine: Machine, training: Training, repository: Path) -> None:
    build_wheel(repository, machine.folder, NEXT_VERSION)
    stop, install, start = section(repository, "With systemd")[-1].text.splitlines()
    of_all = install.replace("[backend]", "[backend,agent,trainer]")
    assert of_all != install
    machine.shell(stop)
    machine.install(with_version(NEXT_VERSION, of_all))
    machine.shell(start)
    machine.restart(AGENT)
    eventually(machine.is_serving, "the API responds after the upgrade", 60)
    training.advances("after the upgrade")
    assert f" {NEXT_VERSION}" in machine.shell(server_command(repository, "--version"))
    versions = [node["inventory"]["agent_version"] for node in machine.cli_json("nodes", "list")]
    assert versions == [NEXT_VERSION]
    assert training.show()["attempt"] == 1, "it never left its node"
    upload_another(machine, "after the upgrade")


def test_everything_starts_with_the_machine_and_the_run_resumes(machine: Machine, training: Training) -> None:
    eventually(training.is_saved, "a checkpoint is stored", 120)
    machine.reboot()
    eventually(machine.is_serving, "the API responds after the machine has started", 90)
    eventually(lambda: machine.is_active([*SERVER, AGENT]), "the units are active", 30)
    eventually(lambda: training.show()["attempt"] == 2, "the run is retried", 300)
    training.advances("after the machine started again", 300)


def test_a_support_bundle_has_the_journal(machine: Machine, repository: Path) -> None:
    (block,) = [block for block in section(repository, "Support bundle") if "systemd-run" in block.text]
    machine.shell(block.text)
    bundle = "/var/lib/trainwright/bundle.tar.gz"
    log = machine.shell(f"tar --extract --to-stdout --wildcards --file {bundle} '*api.log'")
    assert "Uvicorn running" in log


def test_the_units_stop(machine: Machine, training: Training) -> None:
    machine.cli("runs", "cancel", training.run_id)
    eventually(lambda: training.show()["state"] == "cancelled", "the run is cancelled", 120)
    machine.shell(f"systemctl stop {AGENT} {' '.join(SERVER)}")
    states = machine.shell(f"systemctl is-failed {AGENT} {' '.join(SERVER)}", check=False).split()
    assert states == ["inactive"] * 3
