"""The operator's commands explain what to do first, and never print a traceback."""

import fcntl
import json
import sqlite3
import stat
import tarfile
from contextlib import closing
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.backend.conftest import SECRET
from trainwright_backend.cli import app
from trainwright_backend.core import db
from trainwright_backend.core.db import Database
from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.core.open_store import open_store
from trainwright_backend.core.settings import Settings
from trainwright_backend.local.data_folder import VARIABLES_FILE, DataFolder, store_server_variables
from trainwright_backend.local.platform import Platform, bind_socket
from trainwright_backend.migrations.run import is_migrated


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINWRIGHT_SECRET_KEY", SECRET.get_secret_value())
    monkeypatch.setenv("TRAINWRIGHT_DATA_DIR", str(tmp_path))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


@pytest.mark.parametrize("command", ["serve", "link first-owner", "link sign-in a@b", "join-token node-a"])
def test_without_tables_a_command_explains_how_to_create_them(
    environment: None, tmp_path: Path, command: str
) -> None:
    code, output = run(*command.split())
    assert (code, output) == (
        1,
        "The database does not have this version's tables. Run `trainwright-server migrate` first.\n",
    )
    assert list(tmp_path.iterdir()) == [], "it is not created by looking"


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize("command", ["serve", "migrate", "worker", "link first-owner"])
def test_tables_of_a_newer_version_are_refused(environment: None, tmp_path: Path, command: str) -> None:
    run("migrate")
    with closing(sqlite3.connect(tmp_path / "trainwright.sqlite3")) as server:
        server.execute("UPDATE alembic_version SET version_num = '9999'")
        server.commit()
    code, output = run(*command.split())
    assert code == 1 and output.startswith("A newer version of Trainwright has migrated this database."), (
        output
    )


def test_after_migrating_the_first_owner_gets_a_link(environment: None) -> None:
    assert run("migrate") == (0, "")
    code, output = run("link", "first-owner")
    assert code == 0 and "/link/" in output


def test_a_link_is_created_once_a_busy_database_is_free(
    environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("migrate")
    monkeypatch.setattr(db, "BUSY_TIMEOUT_SECONDS", 0)
    with closing(sqlite3.connect(tmp_path / "trainwright.sqlite3", check_same_thread=False)) as server:
        server.execute("BEGIN IMMEDIATE")  # as a server in the middle of a change
        monkeypatch.setattr(db, "RETRY_SECONDS", (0.0, 0.0))
        assert run("link", "first-owner") == (
            1,
            "The database is temporarily unavailable. Try again in a moment.\n",
        )
        monkeypatch.setattr(db, "RETRY_SECONDS", (0.5, 5.0))
        change = Timer(0.1, server.rollback)
        change.start()
        code, output = run("link", "first-owner")
        change.join()
    assert code == 0 and "/link/" in output


def test_a_second_server_on_an_embedded_database_is_refused(environment: None, tmp_path: Path) -> None:
    run("migrate")
    with (tmp_path / "trainwright.sqlite3.lock").open("wb") as held:  # as a running server does
        fcntl.flock(held, fcntl.LOCK_EX)
        code, output = run("serve", "--port", "0")
    assert code == 1 and "Another server uses the database" in output and "PostgreSQL" in output


@pytest.mark.slow(target="databases")
def test_commands_read_the_settings_of_a_local_platforms_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SECRET_KEY", "DATA_DIR", "PUBLIC_URL"):
        monkeypatch.delenv(f"TRAINWRIGHT_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    code, output = run("link", "first-owner")
    assert code == 1 and ".trainwright/main" in output and "--data" in output
    folder = DataFolder.acquire(Path(".trainwright/main"))
    with Platform(
        folder, bind_socket("127.0.0.1", 0), {"TRAINWRIGHT_TIMERS__LEASE_SECONDS": "120"}
    ) as platform:
        address = platform.url
    folder.release()
    for options in ([], ["--data", "elsewhere"]):
        code, output = run("link", "first-owner", *options)
        assert code == 0 and output.startswith(f"{address}/link/"), output
        assert run("link", "sign-in", "a@b.c", *options)[0] == 1, "no one has this account"
        output = run("check-settings", *options)[1]
        assert address in output and "not prepared" not in output, "`up` has its own brokers"
        assert run("support-bundle", "made.tar.gz", *options)[0] == 0
        with tarfile.open("made.tar.gz") as bundle:
            settings = bundle.extractfile("trainwright-support/settings.json")
            assert settings is not None and json.load(settings)["settings"]["timers"]["lease_seconds"] == 120
        Path("made.tar.gz").unlink()
        if not options:  # a data folder can be moved
            Path(".trainwright/main").rename("elsewhere")


def test_reports_about_a_local_platform_have_its_settings_and_not_those_of_the_shell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SECRET_KEY", "DATA_DIR", "PUBLIC_URL"):
        monkeypatch.delenv(f"TRAINWRIGHT_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINWRIGHT_DEFAULT_QUOTA", "3")
    token = "a token that Prometheus has, of the server alone"
    folder = tmp_path / "data"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "api.log").write_text(f"planted {token}\n")
    given = {
        "TRAINWRIGHT_SECRET_KEY": SECRET.get_secret_value(),
        "TRAINWRIGHT_PUBLIC_URL": "http://127.0.0.1:9",
        "TRAINWRIGHT_METRICS_TOKEN": token,
        "TRAINWRIGHT_TIMERS__LEASE_SECONDS": "77",
        "TRAINWRIGHT_ALLOWED_HOSTS": '["planted.example.org"]',
    }
    store_server_variables(folder, {"TRAINWRIGHT_KEY": "a key of a person", "PATH": "/bin", **given})
    assert json.loads((folder / VARIABLES_FILE).read_text()) == given
    assert stat.S_IMODE((folder / VARIABLES_FILE).stat().st_mode) == 0o600
    folder = folder.rename(tmp_path / "moved")

    assert run("support-bundle", "--data", str(folder), "bundle.tar.gz")[0] == 0
    with tarfile.open("bundle.tar.gz") as bundle:
        texts = [content.read().decode() for each in bundle if (content := bundle.extractfile(each))]
    about = next(json.loads(text) for text in texts if "settings_of" in text)
    settings = about["settings"]
    assert settings["metrics_token"] == settings["secret_key"] == "set"
    assert (settings["timers"]["lease_seconds"], settings["default_quota"]) == (77, 8)
    assert settings["data_dir"] == str(folder)
    assert str(folder) in about["settings_of"] and "TRAINWRIGHT_KEY" not in about["variables_set"]
    assert "planted ***\n" in texts, "the server's secrets are masked, which this shell does not have"
    code, output = run("check-settings", "--data", str(folder))
    assert code == 0 and "metrics          set" in output and "planted.example.org" in output


@pytest.mark.parametrize("in_environment", [True, False], ids=["serve", "up"])
@pytest.mark.parametrize("command", ["check-settings", "support-bundle", "audit verify"])
def test_an_invalid_setting_is_named_and_its_value_is_not_printed(
    environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, in_environment: bool
) -> None:
    if not in_environment:
        monkeypatch.delenv("TRAINWRIGHT_SECRET_KEY")
        (tmp_path / "secrets.json").write_text(json.dumps({"secret_key": SECRET.get_secret_value()}))
    monkeypatch.setenv("TRAINWRIGHT_METRICS_TOKEN", "tooshort-planted")
    monkeypatch.setenv("TRAINWRIGHT_SMTP_URL", "mail://user:planted@host")
    code, output = run(*command.split())
    assert code == 1 and "TRAINWRIGHT_SMTP_URL: " in output and "planted" not in output
    assert "TRAINWRIGHT_METRICS_TOKEN: This is too short: write 32 characters or more" in output


def test_an_invalid_node_name_gets_no_token(environment: None) -> None:
    run("migrate")
    code, output = run("join-token", "My Node")
    assert code == 1 and "such as gpu-07" in output
    assert run("join-token", "my-node")[0] == 0


@pytest.mark.both_databases
def test_a_migrated_database_is_recognized(database_url: str) -> None:
    database = Database(database_url)
    assert is_migrated(database)
    database.dispose()


@pytest.mark.parametrize("object_store", ["s3"], indirect=True)
def test_objects_move_to_a_bucket_and_back_and_an_interrupted_move_continues(
    environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, object_store: dict[str, Any]
) -> None:
    code, output = run("objects", "move", "s3")
    assert code == 1 and "TRAINWRIGHT_OBJECT_STORE_URL" in output
    disk = LocalStore(tmp_path / "objects", SECRET)
    contents = {f"team/{name}/content": name.encode() * 1000 for name in "abc"}
    for key, content in contents.items():
        disk.write(key, content)
    for name, value in object_store.items():
        monkeypatch.setenv(f"TRAINWRIGHT_{name.upper()}", value)
    bucket = open_store(Settings())
    bucket.write("team/a/content", contents["team/a/content"])

    assert run("objects", "move", "s3") == (0, "2 objects copied (2,000 bytes), 1 were there already.\n")
    assert disk.list_prefix("") == list(contents), "the source stays"
    assert run("objects", "move", "s3", "--remove") == (
        0,
        "0 objects copied (0 bytes), 3 were there already.\n",
    )
    assert disk.list_prefix("") == []
    assert run("objects", "move", "disk", "--remove")[0] == 0
    assert {key: disk.read(key) for key in disk.list_prefix("")} == contents
    assert bucket.list_prefix("") == []
