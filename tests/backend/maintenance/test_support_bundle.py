"""A support bundle says what is wrong, and has none of the installation's secrets in any form."""

import json
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from tests.backend.conftest import PASSWORD, SECRET
from tests.backend.scripted_agent import Agent, Scene
from trainwright_backend.cli import app as commands
from trainwright_backend.core.db import Database
from trainwright_backend.core.settings import Settings
from trainwright_backend.maintenance import support_bundle
from trainwright_backend.maintenance.masking import Masker, own_hosts, secret_values, without_credentials
from trainwright_backend.maintenance.support_bundle import Configuration, end_of_log, write_support_bundle
from trainwright_backend.teams import one_time_links

UNREACHABLE = "http://127.0.0.1:9"
WEBHOOK_PATH = "services/T01/B02/planted0and1secret"
PEERS = {"203.0.113.77", "2001:db8::7:77"}
"""Addresses of machines in the log."""
ADDRESSES = {
    "hints_url": "redis://:planted%2Dof%2Fhints@hints:6379/0",
    "agents_hints_url": "redis://:planted-of-agents@hints.example.org:6379/0",
    "tasks_url": "redis://planted-user:planted-of-tasks@tasks:6379/0?password=planted-of-query",
    "s3_endpoint": "https://planted-name:planted-of-endpoint@s3.example.org",
}
"""Settings that are not secrets themselves, but contain some."""


def configured(settings: Settings) -> Configuration:
    return Configuration(settings, {}, "a test")


def planted_settings(settings: Settings) -> tuple[Settings, set[str]]:
    """Settings in which every secret is set, and all that must not leave."""
    secret = [name for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)]
    assert {"secret_key", "s3_secret_key", "smtp_url", "metrics_token"} <= set(secret)
    values = {name: f'planted "{name}" with \\ and ü, long enough to be one' for name in secret}
    values["secret_key"] = SECRET.get_secret_value()  # the database has hashes made with it
    values["smtp_url"] = "smtp://planted-sender:planted%20of%20mail@mail.example.org:587"
    wrapped: dict[str, Any] = {name: SecretStr(value) for name, value in values.items()}
    changed = settings.model_copy(update=wrapped | ADDRESSES | {"public_url": UNREACHABLE})
    passwords = {"planted-of-agents", "planted-of-tasks", "planted-of-query", "planted-of-endpoint"}
    passwords |= {"planted-of/hints", "planted%2Dof%2Fhints", "planted of mail", "planted%20of%20mail"}
    return changed, set(values.values()) | passwords


@pytest.fixture
def issued(scene: Scene, settings: Settings) -> set[str]:
    """Secrets that the platform gave out; it stores only hashes of them."""
    site, store = scene.site, scene.site.app.state.store
    invitation = site.admin.post(
        f"{site.path}/invitations", json={"email": "new@acme.example", "role": "viewer"}
    )
    webhook = site.admin.post(f"{site.path}/webhooks", json={"url": "https://hooks.example.org/x"})
    join_token = site.admin.post("/api/v1/join-tokens", json={"name": "node-b"}).json()["token"]
    browser = site.anonymous()
    browser.post("/api/v1/auth/sign-in", json={"email": "ada@acme.example", "password": PASSWORD})
    # The other cookie admits nobody. It is a digest, which the masker leaves, as those of files help to find damage.
    session_cookies = [value for name, value in browser.cookies.items() if not name.endswith("-browser")]
    with scene.database.write() as session:
        sign_in = one_time_links.sign_in_link(session, settings, "ada@acme.example").url
    found = {
        site.admin.headers["Authorization"].removeprefix("Bearer "),
        scene.agent.client.headers["Authorization"].removeprefix("Bearer "),
        invitation.json()["link"].rpartition("/")[2],
        webhook.json()["secret"],
        join_token,
        sign_in.rpartition("/")[2],
        store.sign("GET", "teams/one/content", 60).rpartition("/")[2],
        *session_cookies,
    }
    assert len(found) == 8 and all(len(secret) >= 32 for secret in found)
    return found


def log_lines(secrets: set[str]) -> Iterator[str]:
    """Lines in which something went wrong and a secret was logged, as careless code would."""
    yield json.dumps({"event": "the first line of the log", "request_id": "0123456789abcdef0123456789abcdef"})
    for secret in secrets:
        yield json.dumps({"event": "request failed", "token": secret, "level": "error"})
        yield f"GET /api/v1/link/{secret} 404"
        yield f"Authorization: Bearer {secret}"
        yield f"cannot connect to redis://:{quote(secret, safe='')}@hints:6379/0"
        yield f"Retrying with password={secret!r}, then {secret}."
        yield json.dumps({"exception": json.dumps({"value": secret})})
    yield json.dumps(
        {"event": "request", "url": f"https://hooks.example.org/{WEBHOOK_PATH}", "ip": sorted(PEERS)}
    )
    yield f"POST https://hooks.example.org:8443/{WEBHOOK_PATH}?x=1 from {' and '.join(sorted(PEERS))}: no response"
    yield json.dumps({"event": "email was not sent", "to": "someone@example.org", "password": PASSWORD})
    yield json.dumps({"event": "the last line of the log", "tokens_per_second": 250})


def contents(file: Path) -> dict[str, str]:
    with tarfile.open(file) as bundle:
        return {
            member.name.removeprefix("trainwright-support/"): content.read().decode()
            for member in bundle
            if (content := bundle.extractfile(member)) is not None
        }


def leaks(file: Path, secrets: set[str]) -> set[str]:
    """The secrets that are in the bundle, in the file or in its contents, as they are or encoded."""
    places = [file.read_bytes(), *(f"{name}\n{text}".encode() for name, text in contents(file).items())]
    forms = {
        form: secret
        for secret in secrets
        for form in (
            secret,
            quote(secret, safe=""),
            json.dumps(secret)[1:-1],
            json.dumps(json.dumps(secret))[3:-3],
        )
    }
    return {secret for form, secret in forms.items() if any(form.encode() in place for place in places)}


@pytest.fixture
def bundle(
    scene: Scene, settings: Settings, issued: set[str], tmp_path: Path
) -> tuple[Path, Settings, set[str]]:
    """A bundle of a platform on which a node, a run and the logs have every secret in their texts."""
    planted, secrets = planted_settings(settings)
    secrets |= issued
    key = next(secret for secret in issued if secret.startswith("tw_"))
    Agent.join(scene.site, "node-c", reported={"hostname": f"host {key}", "location": "rack-3"})
    scene.running().ended("bad_job", f"cannot fetch with {key}, no rows")
    logs = settings.data_dir / "logs"
    logs.mkdir()
    (logs / "api.log").write_text("\n".join(log_lines(secrets)))
    (tmp_path / f"journal {key}.log").write_text("from journalctl\n")
    file = tmp_path / "bundle.tar.gz"
    write_support_bundle(configured(planted), scene.database, file, 10_000, [tmp_path / f"journal {key}.log"])
    return file, planted, secrets


def test_a_bundle_has_no_secrets(bundle: tuple[Path, Settings, set[str]]) -> None:
    file, _, secrets = bundle
    assert len(secrets) > 20
    assert leaks(file, secrets | {PASSWORD, "someone@example.org", "planted", WEBHOOK_PATH} | PEERS) == set()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.slow(target="databases")
def test_without_masking_the_secrets_would_be_found(
    scene: Scene, bundle: tuple[Path, Settings, set[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, planted, secrets = bundle
    monkeypatch.setattr(Masker, "text", lambda self, text: text)
    file = tmp_path / "unmasked.tar.gz"
    write_support_bundle(configured(planted), scene.database, file, 10_000)
    assert leaks(file, secrets) == secrets


def test_a_bundle_says_what_is_wrong(scene: Scene, bundle: tuple[Path, Settings, set[str]]) -> None:
    found = contents(bundle[0])
    shown = json.loads(found["settings.json"])["settings"]
    assert set(shown) == set(Settings.model_fields)
    assert shown["secret_key"] == shown["smtp_url"] == "set"
    assert shown["tasks_url"] == "redis://tasks:6379/0" and shown["default_quota"] == 8
    assert json.loads(found["about.json"])["packages"]["trainwright"]
    migrations = json.loads(found["migrations.json"])
    assert migrations["is_of_this_version"] and migrations["revision"]
    assert json.loads(found["tables.json"])["node"] == 2
    assert "Connect" in json.loads(found["health.json"])["error"], "no server listens there"
    assert 'trainwright_runs{state="failed"} 1.0' in found["state.txt"]
    nodes = json.loads(found["nodes.json"])
    assert [(node["name"], node["inventory"]["location"]) for node in nodes] == [
        ("node-a", ""),
        ("node-c", "rack-3"),
    ]
    [attempt] = json.loads(found["failed-attempts.json"])
    assert (attempt["code"], attempt["nodes"]) == ("bad_job", ["node-a"])
    assert any("cannot fetch with" in message and "no rows" in message for message in attempt["messages"])
    assert len(attempt["messages"]) == len(set(attempt["messages"]))
    log = found["logs/0-api.log"].splitlines()
    assert "0123456789abcdef0123456789abcdef" in log[0], "the id of a request is no secret"
    assert json.loads(log[-1]) == {"event": "the last line of the log", "tokens_per_second": 250}
    assert any(
        text == "from journalctl\n" for name, text in found.items() if name.startswith("logs/1-journal")
    )


def test_a_bundle_of_a_platform_without_its_database_has_the_rest(tmp_path: Path, settings: Settings) -> None:
    address = "postgresql+psycopg://trainwright:planted-password@127.0.0.1:9/planted"
    broken = settings.model_copy(update={"database_url": address, "public_url": UNREACHABLE})
    database, file = Database(address), tmp_path / "bundle.tar.gz"
    write_support_bundle(configured(broken), database, file, 10)
    database.dispose()
    found = contents(file)
    for name in ("migrations", "tables", "nodes", "failed-attempts"):
        assert "unavailable" in json.loads(found[f"{name}.json"])["error"]
    assert (
        json.loads(found["settings.json"])["settings"]["database_url"]
        == "postgresql+psycopg://127.0.0.1:9/planted"
    )
    assert leaks(file, {"planted-password"}) == set()


def test_the_command_writes_a_new_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "SECRET_KEY": SECRET.get_secret_value(),
        "DATA_DIR": str(tmp_path),
        "PUBLIC_URL": UNREACHABLE,
    }.items():
        monkeypatch.setenv(f"TRAINWRIGHT_{name}", value)
    monkeypatch.chdir(tmp_path)
    made = CliRunner().invoke(commands, ["support-bundle"])
    assert made.exit_code == 0, made.output
    [file] = tmp_path.glob("trainwright-support-*.tar.gz")
    assert f"{file.name} is written" in made.output
    made_of = contents(file)
    for name in ("migrations", "tables", "nodes", "failed-attempts"):
        assert "there is no database" in json.loads(made_of[f"{name}.json"])["error"]
    assert "the environment of this command" in json.loads(made_of["settings.json"])["settings_of"]
    assert not (tmp_path / "trainwright.sqlite3").exists(), "a report changes nothing"
    before = file.read_bytes()
    refused = CliRunner().invoke(commands, ["support-bundle", file.name])
    assert refused.exit_code == 1 and "File exists" in refused.output and file.read_bytes() == before
    missing = CliRunner().invoke(commands, ["support-bundle", "--log", "nowhere.log", "other.tar.gz"])
    assert missing.exit_code == 1 and "nowhere.log: there is no such file" in missing.output


def test_only_the_last_whole_lines_of_a_log_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "api.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert end_of_log(log, 2) == "line 98\nline 99\n"
    monkeypatch.setattr(support_bundle, "LOG_BYTES", 20)
    assert end_of_log(log, 50) == "line 98\nline 99\n", "a line that begins before them is left out"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://ada:pw@host/x?token=abc&page=2", "https://***@host/***"),
        ("https://ada:pw@own/x?token=abc&page=2", "https://***@own/x?token=***&page=2"),
        (
            '"https://hooks.example.org/T0/b1" and http://hooks.example.org/',
            '"https://hooks.example.org/***" and http://hooks.example.org/',
        ),
        (
            r'{"text": "{\"url\": \"https://hooks.example.org/T0\"}"}',
            r'{"text": "{\"url\": \"https://hooks.example.org/***\"}"}',
        ),
        ("from 203.0.113.77:443, 127.0.0.1 and 0.0.0.0", "from ***:443, 127.0.0.1 and 0.0.0.0"),
        (
            "[2001:db8::7]:443 ::1 fe80::1 at 14:02:33, std::vector, 999.1.1.1",
            "[***]:443 ::1 *** at 14:02:33, std::vector, 999.1.1.1",
        ),
        ("/bucket/key?X-Amz-Signature=0a1b2c&X-Amz-Date=1", "/bucket/key?X-Amz-Signature=***&X-Amz-Date=***"),
        ('{"password": "a b", "n": 1}', '{"password": "***", "n": 1}'),
        (
            '{"text": "{\\"password\\": \\"a b\\", \\"n\\": 1}"}',
            '{"text": "{\\"password\\": \\"***\\", \\"n\\": 1}"}',
        ),
        (r'{"password": "a \" b"}', '{"password": "***"}'),
        ("ada.lovelace@acme.example said", "***@*** said"),
        ("sha256 " + "0af1" * 16, "sha256 " + "0af1" * 16),
        ("run_agrbgt424j3hvnpsqclkhqwn5m failed", "run_agrbgt424j3hvnpsqclkhqwn5m failed"),
        (
            "trainwright_backend.control.steps_of_a_long_module_name",
            "trainwright_backend.control.steps_of_a_long_module_name",
        ),
    ],
)
def test_secrets_are_recognized_by_their_shape(text: str, masked: str) -> None:
    assert Masker([], {"own"}).text(text) == masked


def test_addresses_of_the_platform_keep_their_paths(settings: Settings) -> None:
    ours = settings.model_copy(
        update={"public_url": "https://Train.example.org/", "s3_endpoint": "http://u:p@s3:9000"}
    )
    text = "GET https://train.example.org/api/v1/runs, http://s3:9000/bucket, http://s3/bucket"
    assert Masker([], own_hosts(ours)).text(text) == text.replace("s3/bucket", "s3/***")


def test_variables_named_like_secrets_are_masked(settings: Settings) -> None:
    variables = {
        "AWS_SECRET_ACCESS_KEY": "planted/of+aws",
        "PATH": "/usr/bin:/bin",
        "POSTGRES_PASSWORD": "postgres-1",
    }
    found = secret_values(settings, variables)
    assert {"planted/of+aws", "postgres-1"} <= found and "/usr/bin:/bin" not in found
    assert Masker(found).text("id planted/of+aws in /usr/bin:/bin") == "id *** in /usr/bin:/bin"


def test_addresses_lose_their_credentials() -> None:
    assert without_credentials("redis://u:p@h:1/0?password=x#y") == "redis://h:1/0"
    assert without_credentials("sqlite:////data/trainwright.sqlite3") == "sqlite:////data/trainwright.sqlite3"
