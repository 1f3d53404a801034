"""The wheel, as a user installs it: into an empty environment, with neither the repository nor Node.js nor make.

The versions are those that pip finds within the declared bounds, not the locked ones; only PyTorch is chosen as by
``infra/venv.sh``. Everything then runs with only this environment on its PATH.
"""

import importlib.metadata
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live import TEAM, eventually, marked_processes, small_spec, store_cpu_peak, write_letters
from trainwright.client import Client
from trainwright.contracts.api.people import OneTimeLink
from trainwright_backend.local.platform import bind_socket

pytestmark = [pytest.mark.slow(target="wheel-check"), pytest.mark.timeout(1_200)]

VERSION = importlib.metadata.version("trainwright")
STEPS = 12


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and an empty folder to work in."""

    programs: Path
    home: Path

    def environment(self, **variables: str) -> dict[str, str]:
        return {"PATH": str(self.programs), "HOME": str(self.home), "LANG": "C.UTF-8", **variables}

    def run(self, program: str, *words: object, **variables: str) -> str:
        """The standard output of one of the environment's programs."""
        command = [str(self.programs / program), *map(str, words)]
        done = subprocess.run(
            command, cwd=self.home, env=self.environment(**variables), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def installed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=repository, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    index = ["--index-url", os.environ["TORCH_INDEX"]] if os.environ.get("TORCH_INDEX") else []
    torch = f"torch=={os.environ.get('TORCH_VERSION', '2.13.0')}"
    for words in ([*index, torch], [f"{wheel}[all]"]):
        install = [environment / "bin" / "python", "-m", "pip", "--no-input", "install", "--quiet", *words]
        done = subprocess.run(install, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    home = folder / "home"
    home.mkdir()
    return Installed(environment / "bin", home)


@contextmanager
def up(installed: Installed, data: Path, port: int) -> Iterator[str]:
    """`trainwright-server up` in a process until Ctrl-C; yields the token that creates the first account."""
    command = [installed.programs / "trainwright-server", "up", "--data", data, "--port", str(port)]
    with (installed.home / "up.log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=installed.home,
            env=installed.environment(),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline() for _ in range(2)]
            assert "first account" in lines[-1], (installed.home / "up.log").read_text()
            yield lines[-1].strip().rsplit("/", 1)[-1]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_an_installed_wheel_serves_its_pages_and_trains_a_model(installed: Installed, tmp_path: Path) -> None:
    data = installed.home / "data"
    data.mkdir(mode=0o700)
    store_cpu_peak(data / "agent", cpu_slots=2)
    with bind_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with up(installed, data, port) as token, Client(address) as client:
        assert "Password" in rendered(f"{address}/sign-in", tmp_path), "a form that the pages' code renders"

        password = secrets.token_urlsafe(16)
        client.use_link(OneTimeLink(token=token, name="Ada", email="a@b.c", password=password, team=TEAM))
        key = client.create_key("tests").secret
        user = {"TRAINWRIGHT_SERVER": address, "TRAINWRIGHT_KEY": key, "TRAINWRIGHT_TEAM": TEAM}
        with Client(address, key) as keyed:
            eventually(lambda: any(node.online for node in keyed.nodes()), "the node joins", 120)
            letters = write_letters(tmp_path / "letters.jsonl")
            uploaded = installed.run("trainwright", "datasets", "upload", "letters", letters, **user)
            dataset = keyed.team(TEAM).dataset(uploaded.split()[0])

        spec = tmp_path / "spec.json"
        spec.write_text(json.dumps(small_spec(dataset, schedule={"steps": STEPS, "warmup_steps": 2})))
        submitted = installed.run("trainwright", "runs", "submit", spec, "--wait", **user)
        run_id = submitted.split()[0]
        model = tmp_path / "model"
        installed.run("trainwright", "runs", "download", run_id, model, **user)
    assert (model / "model.safetensors").stat().st_size > 0
    sampled = installed.run(
        "python", "-m", "trainwright_trainer.main", "sample", model, "--prompt", "Letter", "--tokens", 8
    )
    assert "Letter" in sampled
    assert marked_processes(data) == []


@pytest.mark.parametrize("program", ["trainwright", "trainwright-server", "trainwright-agent"])
def test_an_installed_command_has_the_version_of_the_source(installed: Installed, program: str) -> None:
    assert installed.run(program, "--version") == f"trainwright {VERSION}"


def rendered(address: str, folder: Path) -> str:
    """The document that Chromium makes of a page, with its scripts run."""
    browser = os.environ.get("CHROMIUM_PATH") or shutil.which("chromium")
    assert browser is not None, "make chromium"
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'chromium'}"]
    command = [browser, *options, "--virtual-time-budget=20000", "--dump-dom", address]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
