"""Logging in by the command line: a stored key that all commands use, until logging out revokes it."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from typer.testing import CliRunner, Result

from tests.backend.runs.conftest import Served
from tests.backend.scripted_agent import Scene
from trainwright import cli
from trainwright.commands.terminal import LOCAL_SERVER
from trainwright_backend.auth import device_logins

CODE = "BCDF-GHJK"


@pytest.fixture
def settings_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(device_logins, "_new_user_code", lambda: CODE)
    for name in ("SERVER", "KEY"):
        monkeypatch.delenv(f"TRAINWRIGHT_{name}", raising=False)
    return tmp_path / "trainwright"


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.app, words, env={"COLUMNS": "200"})


def key_of(scene: Scene) -> str:
    return str(scene.site.admin.headers["Authorization"]).removeprefix("Bearer ")


def waiting(monkeypatch: pytest.MonkeyPatch, *between: Callable[[], object]) -> list[float]:
    """Instead of sleeping for the n-th time, a login calls the n-th of these, or the last one. Returns the list of waits."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        between[min(len(waits), len(between)) - 1]()

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: sum(waits))
    monkeypatch.setattr("trainwright.commands.login.time", clock)
    return waits


def nothing() -> None:
    """The program waits, and nobody decides."""


def test_a_login_stores_a_key_for_all_commands_until_the_logout(
    served: Served, scene: Scene, settings_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def approve() -> None:
        approved = served.command(key_of(scene), f"keys approve {CODE.lower()} --yes")
        assert approved.exit_code == 0 and "scope submit" in approved.output, approved.output

    waits = waiting(monkeypatch, nothing, nothing, approve)
    done = run("login", "--server", served.url, "--scope", "submit", "--name", "my laptop")
    assert done.exit_code == 0, done.output
    assert (
        CODE in done.output and "http://localhost/sign-in/device" in done.output and "as Ada" in done.output
    )
    assert waits == [5, 5, 10], "the second poll came too early for the server"
    file = settings_folder / "keys.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    [stored] = json.loads(file.read_text())["keys"].values()
    assert stored not in done.output

    shown = run("keys", "list")
    assert shown.exit_code == 0 and "my laptop" in shown.output and "submit" in shown.output
    assert run("keys", "create", "more").exit_code == 1, "its scope applies"
    elsewhere = run("account", "show", "--server", "http://127.0.0.1:9")
    assert elsewhere.exit_code == 1 and "trainwright login --server http://127.0.0.1:9" in elsewhere.output

    waiting(monkeypatch, approve)
    assert run("login", "--scope", "submit").exit_code == 0, "the server of the last login"
    [second] = json.loads(file.read_text())["keys"].values()
    assert second != stored
    assert served.command(stored, "account show").exit_code == 1, "the earlier key is revoked"

    out = run("logout")
    assert out.exit_code == 0 and json.loads(file.read_text())["keys"] == {}
    assert served.command(second, "account show").exit_code == 1
    assert run("account", "show").exit_code == 1 and run("logout").exit_code == 1


def test_a_refused_login_stores_nothing(
    served: Served, scene: Scene, settings_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(monkeypatch, lambda: served.command(key_of(scene), f"keys approve {CODE} --refuse --yes"))
    done = run("login", "--server", served.url)
    assert done.exit_code == 1 and "was refused" in done.output
    assert not settings_folder.exists()


def test_a_login_ends_when_its_code_expires_while_the_server_is_away(
    served: Served, settings_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_client: object, _code: str) -> None:
        raise httpx.ConnectError("no route")

    monkeypatch.setattr("trainwright.client.Client.redeem_device_code", away)
    waits = waiting(monkeypatch, nothing)
    done = run("login", "--server", served.url)
    assert done.exit_code == 1 and "The code has expired. Run `trainwright login` again." in done.stderr
    assert 600 <= sum(waits) <= 3_600
    assert not settings_folder.exists()


def test_a_given_key_goes_to_this_machine_and_not_to_the_server_of_the_last_login(
    settings_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_folder.mkdir()
    stored = {"server": "https://train.example.org", "keys": {"https://train.example.org": "tw_stored"}}
    (settings_folder / "keys.json").write_text(json.dumps(stored))
    asked: list[tuple[str, str]] = []

    def unreachable(server: str, key: str) -> None:
        asked.append((server, key))
        raise httpx.ConnectError("no route")

    monkeypatch.setattr("trainwright.commands.terminal.Client", unreachable)
    assert "No response from https://train.example.org" in run("account", "show").output
    run("account", "show", "--key", "tw_mine")
    run("account", "show", "--server", "https://train.example.org/", "--key", "tw_other")
    assert asked == [
        ("https://train.example.org", "tw_stored"),
        (LOCAL_SERVER, "tw_mine"),
        ("https://train.example.org/", "tw_other"),
    ]
    (settings_folder / "keys.json").write_text("damaged")
    broken = run("account", "show")
    assert broken.exit_code == 1 and "is damaged: delete it" in broken.output
