"""The agent's command line."""

import stat
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.agent.api import JOIN_TOKEN, NODE_TOKEN, ScriptedApi
from tests.agent.folders import make_attempt
from trainwright_agent.daemon.attempts import start_supervisor
from trainwright_agent.identity import load_identity, load_settings
from trainwright_agent.main import app
from trainwright_agent.workspace import Workspace


def join(api_url: str, data: Path, token: str = JOIN_TOKEN) -> list[str]:
    options = ["--api", api_url, "--name", "box", "--token", token, "--data", str(data)]
    return ["join", *options, "--cpu-slots", "0"]  # without CPU slots there is nothing to measure


def test_joining_stores_the_identity_readable_by_its_owner_only(api: ScriptedApi, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, join(api.url, tmp_path / "node"))
    assert done.exit_code == 0, done.output
    identity = load_identity(tmp_path / "node")
    assert identity is not None
    assert (identity.node_token, identity.api_url, identity.name) == (NODE_TOKEN, api.url, "box")
    assert load_settings(tmp_path / "node").cpu_slots == 0
    assert stat.S_IMODE((tmp_path / "node" / "agent.json").stat().st_mode) == 0o600
    assert NODE_TOKEN not in done.output


def test_joining_twice_or_with_a_bad_token_is_refused_with_a_message(
    api: ScriptedApi, tmp_path: Path
) -> None:
    refused = CliRunner().invoke(app, join(api.url, tmp_path / "node", token="guessed"))
    assert refused.exit_code == 1
    assert "rejected this node" in refused.output
    assert load_identity(tmp_path / "node") is None
    CliRunner().invoke(app, join(api.url, tmp_path / "node"))
    again = CliRunner().invoke(app, join(api.url, tmp_path / "node"))
    assert again.exit_code == 1
    assert "already joined" in again.output


def test_running_before_joining_names_the_missing_options(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", "--data", str(tmp_path / "node")])
    assert done.exit_code == 1
    assert "--token-file" in done.output


def test_stopping_without_a_running_agent_is_harmless(tmp_path: Path) -> None:
    Workspace(tmp_path / "node").prepare()
    assert CliRunner().invoke(app, ["stop", "--data", str(tmp_path / "node"), "--with-runs"]).exit_code == 0


def test_stopping_in_a_mistyped_folder_fails(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["stop", "--data", str(tmp_path / "nood"), "--with-runs"])
    assert done.exit_code == 1
    assert "not an agent's data folder" in done.output
    assert not (tmp_path / "nood").exists()


def test_stopping_with_runs_ends_an_attempt_whose_supervisor_is_starting(
    api: ScriptedApi, tmp_path: Path
) -> None:
    data = tmp_path / "node"
    assert CliRunner().invoke(app, join(api.url, data)).exit_code == 0
    folder = make_attempt(data, api.place().run_id)
    done = CliRunner().invoke(app, ["stop", "--data", str(data), "--with-runs"])
    assert done.exit_code == 0
    assert start_supervisor(folder).wait(20) == 0
    end = folder.exit()
    assert end is not None
    assert end.code == "stopped"
    assert not api.runs["run_1"].renewals


def test_agents_need_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    done = CliRunner().invoke(app, ["run", "--data", str(tmp_path / "node")])
    assert done.exit_code == 1
    assert "WSL2" in done.output


def test_the_help_names_the_defaults() -> None:
    done = CliRunner().invoke(app, ["join", "--help"], env={"COLUMNS": "200"})
    assert "Ranks that may run on the CPU at once. Default: 2." in done.output
    assert "Default: that of its route to the server." in done.output
