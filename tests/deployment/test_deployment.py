"""The deployment for a fleet works: docker-compose.yml with its images, started, disturbed, upgraded and stopped.

Its containers train a model in FP8. The tests of this file continue from one another, in order.
"""

import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import safetensors

from tests.deployment.deployment import (
    ADDRESS,
    HOST,
    PROJECT,
    Deployment,
    copy_sources,
    published_address,
    set_version,
    write_settings,
)
from tests.deployment.engine import Engine
from tests.deployment.images import build_ours, build_stand_ins
from tests.deployment.training import Training, start_training
from tests.live import eventually

pytestmark = [pytest.mark.slow(target="compose-check"), pytest.mark.timeout(5_400)]

NEXT_VERSION = "99.0.0"
CONTAINER_USER = 10_001
ONE_SHOTS = {"volume-owners", "bucket", "migrate"}
CRASHED = ["hints_1", "tasks_1", "postgres_1", "s3_1", "worker_1", "api_1", "api_2", "proxy_1"]
WITHOUT_CHECK = {"worker_1"}
CAPABILITIES = {"proxy_1": 1 << 10}
"""NET_BIND_SERVICE: Caddy's image has a program that does not start without it."""


@pytest.fixture(scope="module")
def deployment(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A folder with the sources and `.env`, and the images of this version and the next one."""
    engine = Engine.of_checks()
    folder = tmp_path_factory.mktemp("deployment")
    copy_sources(repository, folder)
    write_settings(folder)
    (folder / "join-token").touch()
    deployment = Deployment(engine, folder)
    build_stand_ins(engine, repository, deployment.services)
    current = deployment.services["api"]["image"].partition(":")[2]
    for version in (current, NEXT_VERSION):
        set_version(folder, version)
        for service in ("api", "cpu-node"):
            build_ours(engine, folder, deployment.services[service], version)
    with published_address():
        try:
            yield deployment
        finally:
            deployment.compose("--profile=cpu", "down", "--volumes", check=False)


@pytest.fixture(scope="module")
def started(deployment: Deployment) -> Deployment:
    deployment.start()
    deployment.start_node()
    return deployment


@pytest.fixture(scope="module")
def training(started: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Training:
    return start_training(started, tmp_path_factory.mktemp("user"))


def required_variables(repository: Path) -> list[str]:
    compose = (repository / "docker-compose.yml").read_text()
    return sorted(set(re.findall(r"\$\{(\w+):\?", compose)))


def test_a_missing_variable_stops_the_start_with_its_name(deployment: Deployment, repository: Path) -> None:
    file = deployment.folder / ".env"
    written = file.read_text()
    variables = required_variables(repository)
    assert {"TRAINWRIGHT_SECRET_KEY", "POSTGRES_PASSWORD", "TRAINWRIGHT_S3_SECRET_KEY"} <= set(variables)
    try:
        for name in variables:
            file.write_text(re.sub(rf"^{name}=.*\n", "", written, flags=re.MULTILINE))
            refused = deployment.compose("up", "--detach", "--no-build", check=False)
            assert refused.returncode != 0 and name in refused.stderr, name
            assert deployment.containers() == {}, name
    finally:
        file.write_text(written)


def test_all_services_start_in_order_and_are_confined(started: Deployment) -> None:
    states = started.containers()
    assert {name for name, state in states.items() if state == "exited"} == {
        f"{name}_1" for name in ONE_SHOTS
    }
    running = [name for name, state in states.items() if state == "running"]
    assert sorted(running) == sorted([*CRASHED, "cpu-node_1"])
    for name in ONE_SHOTS:
        assert started.inspect(f"{name}_1")["State"]["ExitCode"] == 0, name
    for name in running:
        assert started.execute(name, "id", "--user") != "0", name
        status = started.execute(name, "cat", "/proc/1/status")
        held = re.search(r"^CapEff:\s(\w+)$", status, re.MULTILINE)
        assert held and int(held[1], 16) == CAPABILITIES.get(name, 0), name
        assert (
            started.execute(name, "sh", "-c", "touch /usr/x /etc/x || echo refused", check=False) == "refused"
        )
        limits = started.inspect(name)["HostConfig"]
        assert limits["PidsLimit"] > 0 and (limits["Memory"] > 0 or name == "cpu-node_1"), name
        assert limits["RestartPolicy"]["Name"] == "unless-stopped", name


def test_only_the_proxy_and_the_hints_broker_are_published(started: Deployment) -> None:
    published = {
        (name, port, binding["HostIp"])
        for name in started.containers()
        for port, bindings in (started.inspect(name)["HostConfig"]["PortBindings"] or {}).items()
        for binding in bindings or []
    }
    proxied = {("proxy_1", f"{port}/tcp", ADDRESS) for port in (80, 443, 9443)}
    assert published == {*proxied, ("hints_1", "6379/tcp", ADDRESS)}
    reach = "import socket; socket.create_connection(('{}', {}), 3)"
    for host, port in (("tasks", 6379), ("postgres", 5432), ("api", 8000)):
        started.execute("worker_1", "python", "-c", reach.format(host, port))
        refused = started.execute(
            "cpu-node_1", "sh", "-c", f'python -c "{reach.format(host, port)}" 2>&1', check=False
        )
        assert "Errno" in refused, f"a node reaches {host}"


def test_the_servers_see_the_address_of_the_user_and_believe_no_header(started: Deployment) -> None:
    script = (
        f"import httpx, os; httpx.post('https://{HOST}/api/v1/me/keys', json={{'name': 'spoof'}}, headers="
        "{'Authorization': 'Bearer ' + os.environ['TRAINWRIGHT_KEY'], 'X-Forwarded-For': '203.0.113.9'}).raise_for_status()"
    )
    started.with_hosts(sys.executable, "-c", script)
    newest = started.cli_json("audit", "site")["items"][0]
    assert newest["action"] == "create_key" and newest["address"] == ADDRESS


def test_a_run_survives_the_crash_of_each_service(deployment: Deployment, training: Training) -> None:
    training.advances("before any crash", 300)
    for name in CRASHED:
        deployment.crash(name)
        if name not in WITHOUT_CHECK:
            eventually(partial(deployment.is_healthy, name), f"{name} is healthy again", 180)
        training.advances(f"after the crash of {name}")
    assert training.show()["attempt"] == 1, "it never left its node"


def test_a_run_resumes_after_the_crash_of_its_node(deployment: Deployment, training: Training) -> None:
    eventually(training.is_saved, "a checkpoint is stored", 120)
    deployment.crash("cpu-node_1")
    eventually(lambda: training.show()["attempt"] == 2, "the run is retried", 300)
    training.advances("after the crash of its node", 300)


def test_an_upgrade_keeps_data_and_runs(deployment: Deployment, training: Training) -> None:
    deployment.compose("--profile=cpu", "up", "--detach", "--no-build", version=NEXT_VERSION)
    eventually(lambda: deployment.is_healthy("proxy_1"), "the proxy is healthy", 60)
    for name in ("api_1", "worker_1", "cpu-node_1"):
        assert deployment.inspect(name)["ImageName"].endswith(f":{NEXT_VERSION}"), name
    assert f" {NEXT_VERSION}" in deployment.execute("api_1", "trainwright-server", "--version")
    training.advances("after the upgrade", 300)
    assert [item["name"] for item in deployment.cli_json("datasets", "list")] == ["letters"]


def test_a_fork_of_the_run_ends_and_is_downloaded(
    deployment: Deployment, training: Training, tmp_path: Path
) -> None:
    deployment.cli("runs", "cancel", training.run_id)
    eventually(lambda: training.show()["state"] == "cancelled", "the run is cancelled", 120)
    newest = max(item["step"] for item in deployment.cli_json("runs", "checkpoints", training.run_id))
    forked = deployment.cli("runs", "fork", training.run_id, "end", "--set", f"schedule.steps={newest + 20}")
    fork = Training(deployment, forked.split()[0])
    eventually(lambda: fork.show()["state"] in ("succeeded", "failed"), "the fork ends", 600)
    assert fork.show()["state"] == "succeeded", fork.show()["reason"]
    model = tmp_path / "model"
    deployment.cli("runs", "download", fork.run_id, model)
    with safetensors.safe_open(model / "model.safetensors", framework="numpy") as file:
        assert len(list(file.keys())) > 10


def test_a_backup_is_restored_into_empty_volumes(
    deployment: Deployment, training: Training, tmp_path: Path
) -> None:
    folder = deployment.folder / "backup"
    folder.mkdir()
    os.chown(folder, CONTAINER_USER, CONTAINER_USER)
    before = [(item["id"], item["state"]) for item in deployment.cli_json("runs", "list")]

    def run(*command: str) -> None:
        options = ("--rm", "--no-deps", "--env", "TMPDIR=/data", "--volume", f"{folder}:/backup")
        deployment.compose("run", *options, "api", "trainwright-server", *command, version=NEXT_VERSION)

    run("backup", "/backup")
    run("verify", "/backup")
    deployment.compose("--profile=cpu", "down", version=NEXT_VERSION)
    for volume in ("postgres", "s3", "cache"):
        deployment.engine.podman("volume", "rm", f"{PROJECT}_{volume}")
    deployment.compose("up", "--detach", "--no-build", "postgres", "bucket", version=NEXT_VERSION)
    run("restore", "/backup")
    deployment.compose("--profile=cpu", "up", "--detach", "--no-build", version=NEXT_VERSION)
    eventually(lambda: deployment.is_healthy("proxy_1"), "the proxy is healthy", 120)
    assert [(item["id"], item["state"]) for item in deployment.cli_json("runs", "list")] == before
    deployment.cli("runs", "download", before[0][0], tmp_path / "model")


def test_taking_it_down_leaves_only_the_volumes(started: Deployment) -> None:
    started.compose("--profile=cpu", "down", version=NEXT_VERSION)
    assert started.containers() == {}
    assert PROJECT not in started.engine.podman("network", "ls", "--format", "{{.Name}}")
    volumes = started.engine.podman("volume", "ls", "--format", "{{.Name}}").splitlines()
    kept = {name.removeprefix(f"{PROJECT}_") for name in volumes}
    assert kept == {"postgres", "s3", "cache", "proxy", "node"}
