"""`/metrics` shows what Prometheus needs, to bearers of the operator's token only, and never a name without end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr, ValidationError
from sqlalchemy import event, func, select, update

from tests.backend.conftest import PASSWORD, SECRET
from tests.backend.monitoring.conftest import TOKEN, Scrape, parse
from tests.backend.scripted_agent import Agent, Scene
from trainwright_backend.auth.device_logins import MAX_GUESSES
from trainwright_backend.auth.passwords import MAX_ATTEMPTS
from trainwright_backend.core.completed_backups import CompletedBackup
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.errors import Busy
from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.core.s3_errors import ObjectStoreError
from trainwright_backend.core.settings import Settings
from trainwright_backend.maintenance.backup import create_backup
from trainwright_backend.monitoring.exposition import MAX_AGE_SECONDS, Exposition
from trainwright_backend.nodes.tables import Node
from trainwright_backend.teams.webhook_sender import WebhookSender

HARDWARE = {
    "cpu_utilization": 0.5,
    "memory_bytes": 6,
    "memory_total_bytes": 8,
    "disk_bytes": 90,
    "disk_total_bytes": 100,
    "gpus": [{"index": 0, "utilization": 0.75, "memory_bytes": 1 << 36, "temperature_celsius": 61.0}],
}


def scraper(scene: Scene, authorization: str | None) -> httpx.Response:
    headers = {} if authorization is None else {"Authorization": authorization}
    return scene.site.anonymous().get("/metrics", headers=headers)


def test_only_bearers_of_the_token_see_metrics(scene: Scene) -> None:
    assert scraper(scene, f"Bearer {TOKEN}").headers["content-type"].startswith("text/plain; version=0.0.4")
    for wrong in (
        None,
        "Bearer",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        scene.site.admin.headers["Authorization"],
    ):
        assert scraper(scene, wrong).status_code == 401, wrong


def test_without_a_token_nobody_sees_metrics(scene: Scene, settings: Settings) -> None:
    scene.site.app.state.settings = settings.model_copy(update={"metrics_token": None})
    for given in (None, "Bearer ", "Bearer None", f"Bearer {TOKEN}"):
        response = scraper(scene, given)
        assert response.status_code == 404 and "TRAINWRIGHT_METRICS_TOKEN" in response.json()["detail"]


def test_a_short_token_is_refused_and_an_empty_one_is_none() -> None:
    with pytest.raises(ValidationError):
        Settings(secret_key=SECRET, metrics_token=SecretStr("guessed"))
    assert Settings(secret_key=SECRET, metrics_token="").metrics_token is None  # as Compose sets it


def test_the_state_of_the_platform_is_shown(scene: Scene, scrape: Scrape) -> None:
    work = scene.running()
    work.send(
        work.batch(
            metrics=[{"steps": [4], "series": {"loss": [1.0], "tokens_per_second": [250.0], "mfu": [0.4]}}]
        )
    )
    waiting = [scene.submit(2), scene.submit(1)]
    gpus = Agent.join(scene.site, "gpu-1", cpu_slots=0, gpus=2)
    gpus.heartbeat(hardware=HARDWARE)
    for name in ("drained", "quarantined", "offline"):
        Agent.join(scene.site, name, cpu_slots=1)
    states: dict[str, dict[str, Any]] = {
        "drained": {"draining": True},
        "quarantined": {"quarantined": now()},
        "offline": {"last_heartbeat": None},
    }
    with scene.database.write() as session:
        for name, values in states.items():
            session.execute(update(Node).where(Node.name == name).values(**values))
    scene.control.sweep()

    found = scrape()
    assert found.labelled("runs") == {("running",): 1, ("queued",): 2}
    assert found.labelled("queue_runs") == {("cpu", "slots", "queued"): 2}, waiting
    assert found.labelled("slots") == {
        ("cpu", "used"): 1,
        ("cpu", "free"): 1,
        ("cpu", "unavailable"): 3,
        ("cuda", "free"): 2,
    }
    assert found.labelled("nodes") == {("online",): 2, ("drained",): 1, ("quarantined",): 1, ("offline",): 1}
    assert found.of("node_online", node="offline") == 0 and found.of("node_online", node="drained") == 1
    assert 0 <= (found.of("node_heartbeat_age_seconds", node="gpu-1") or 0) < 60
    assert found.of("team_running_runs", team="acme") == 1
    assert found.of("team_tokens_per_second", team="acme") == 250
    assert found.of("team_mfu", team="acme") == 0.4
    assert (
        found.of("node_disk_bytes", node="gpu-1") == 90
        and found.of("node_disk_total_bytes", node="gpu-1") == 100
    )
    assert found.of("gpu_utilization", node="gpu-1", gpu="0") == 0.75
    assert found.of("gpu_temperature_celsius", node="gpu-1", gpu="0") == 61
    assert found.of("gpu_power_watts", node="gpu-1", gpu="0") is None, "its driver does not report it"
    assert found.of("gpu_memory_total_bytes", node="gpu-1", gpu="1") == 1 << 37
    assert (found.of("stored_bytes", kind="uploads") or 0) > 10_000
    assert (found.of("stored_bytes", kind="shards") or 0) > 0
    assert found.of("database_up") == 1

    work.ended("crashed")
    assert scrape().labelled("queue_runs")["cpu", "crashed", "retry_wait"] == 1


def test_jobs_of_datasets_are_shown_with_the_age_of_the_oldest(scene: Scene, scrape: Scrape) -> None:
    assert scrape().labelled("dataset_jobs") == {}
    scene.submit(data={"dataset": scene.dataset, "tokenizer": {"kind": "bpe", "vocabulary": 300}})
    found = scrape()
    assert found.labelled("dataset_jobs") == {("prepare", "due"): 1}
    assert 0 < (found.of("dataset_job_oldest_seconds", kind="prepare") or 0) < 60
    assert found.labelled("queue_runs") == {("cpu", "turn", "queued"): 1}
    scene.control.sweep()
    assert scrape().labelled("queue_runs") == {("cpu", "data", "queued"): 1}
    scene.site.prepare()
    assert scrape().labelled("dataset_jobs") == {}


def test_what_happens_to_runs_is_counted_once_it_is_committed(scene: Scene, scrape: Scrape) -> None:
    before = scrape()
    crashed = scene.running()
    crashed.ended("crashed")
    assert scene.again(crashed.run_id).finish(10) == "succeeded"
    bad = scene.running()
    assert bad.ended("bad_job") == "failed"
    scene.cancel(scene.submit())
    scene.start()
    scene.control.let_pass(scene.site.app.state.settings.timers.lease_seconds + 2)

    grown = scrape().since(before)
    assert grown.of("attempts_started_total") == 4
    assert grown.labelled("attempts_ended_total") == {
        ("crashed",): 1,
        ("finished",): 1,
        ("bad_job",): 1,
        ("lease_expired",): 1,
    }
    assert grown.labelled("runs_ended_total") == {
        ("finished", "succeeded"): 1,
        ("bad_job", "failed"): 1,
        ("cancelled", "cancelled"): 1,
    }
    assert grown.of("leases_expired_total") == 1
    assert (grown.of("object_store_bytes_total", direction="written") or 0) > 1_000, (
        "the checkpoint and the export"
    )


def test_requests_are_counted_by_the_template_of_their_route(scene: Scene, scrape: Scrape) -> None:
    before = scrape()
    client = scene.site.anonymous()
    run_id = scene.submit()
    scene.show(run_id)
    client.get("/api/v1/me")
    client.get("/api/v1/link/made-up-secret-of-a-link")
    client.request("INVENTED", "/api/v1/health")
    grown = scrape().since(before)
    requests = grown.labelled("http_request_seconds_count")
    assert requests["GET", "/api/v1/teams/{team}/runs/{run}", "2xx"] == 1
    assert requests["POST", "/api/v1/teams/{team}/runs", "2xx"] == 1
    assert requests["GET", "/api/v1/me", "4xx"] == 1
    assert {method for method, _, _ in requests} == {"GET", "POST", "other"}
    text = scraper(scene, f"Bearer {TOKEN}").text
    for endless in (run_id, "made-up", "INVENTED", scene.dataset):
        assert endless not in text


def test_refused_sign_ins_failed_webhooks_and_store_errors_are_counted(
    scene: Scene, scrape: Scrape, settings: Settings
) -> None:
    before = scrape()
    guess = {"email": "ada@acme.example", "password": "not the password"}
    for _ in range(21):
        scene.site.anonymous().post("/api/v1/auth/sign-in", json=guess)
    hook = {"url": "http://localhost:9/closed"}
    assert scene.site.admin.post(f"{scene.site.path}/webhooks", json=hook).status_code == 201
    scene.running().ended("bad_job")
    sender = WebhookSender(scene.database, settings)
    assert len(sender.start_due()) == 1
    sender.close()
    ObjectStoreError()
    grown = scrape().since(before)
    assert grown.labelled("sign_ins_refused_total") == {("wrong_password",): 20, ("too_many_attempts",): 1}
    assert grown.labelled("webhook_attempts_total") == {("failed",): 1}
    assert grown.of("webhook_messages_due") == 1
    assert grown.labelled("object_store_errors_total") == {("unavailable",): 1}


def test_only_sign_ins_count_as_refused_sign_ins(scene: Scene, scrape: Scrape) -> None:
    site = scene.site
    browser = site.anonymous()
    me = {"email": "ada@acme.example", "password": PASSWORD}
    assert browser.post("/api/v1/auth/sign-in", json=me).status_code == 200
    before = scrape()
    for _ in range(MAX_GUESSES):
        assert site.admin.get("/api/v1/me/device/BCDF-GHJK").status_code == 404
    assert site.admin.get("/api/v1/me/device/BCDF-GHJK").json()["code"] == "too_many_codes"
    change = {"current_password": "not the password", "password": "another long enough password"}
    for _ in range(MAX_ATTEMPTS):
        assert browser.post("/api/v1/me/password", json=change).status_code == 422
    assert browser.post("/api/v1/me/password", json=change).json()["code"] == "too_many_attempts"
    assert scrape().since(before).labelled("sign_ins_refused_total") == {}


def test_a_failed_step_and_a_round_of_the_control_loop_are_counted(
    scene: Scene, scrape: Scrape, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("planted")

    before = scrape()
    monkeypatch.setattr(scene.site.app.state.store, "sweep_incoming", fail)
    scene.control.loop.lead_round(sweep=True)
    scene.control.loop.lead_round(sweep=False)
    scene.control.loop.leader.resign()
    after = scrape()
    grown = after.since(before)
    assert grown.of("control_step_errors_total") == 1
    assert grown.labelled("control_round_seconds_count") == {("sweep",): 1, ("place",): 1}
    assert abs((after.of("control_last_round_timestamp_seconds") or 0) - now().timestamp()) < 60


@pytest.fixture
def statements(database: Database) -> Iterator[list[str]]:
    """The SQL statements that were sent, without those that begin and end transactions."""
    sent: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            sent.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    yield sent
    event.remove(database.engine, "before_cursor_execute", note)


def test_the_state_takes_three_statements_and_is_read_again_only_after_some_seconds(
    scene: Scene, settings: Settings, statements: list[str]
) -> None:
    seconds = [0.0]
    exposition = Exposition(scene.database, settings, lambda: [], clock=lambda: seconds[0])
    scene.submit()
    statements.clear()
    first = parse(exposition.text().decode())
    assert len(statements) == 3, statements
    scene.submit()
    statements.clear()
    seconds[0] += MAX_AGE_SECONDS
    assert (
        parse(exposition.text().decode()).of("runs", state="queued") == first.of("runs", state="queued") == 1
    )
    assert not statements
    seconds[0] += 0.1
    assert parse(exposition.text().decode()).of("runs", state="queued") == 2


def test_without_the_database_the_counts_of_the_process_are_shown(
    scene: Scene, scrape: Scrape, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_: Database) -> None:
        raise Busy("database_busy", "planted")

    with monkeypatch.context() as planted:
        planted.setattr(Database, "read", busy)
        found = scrape()
    assert found.of("database_up") == 0
    assert found.of("runs", state="queued") is None
    assert found.of("attempts_started_total") is not None
    assert (found.of("disk_free_bytes", folder="data") or 0) > 0


def test_the_newest_backup_has_the_state_before_its_first_byte(
    scene: Scene, scrape: Scrape, tmp_path: Path
) -> None:
    assert scrape().of("backup_state_timestamp_seconds") == 0
    app = scene.site.app
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        place, steps = LocalStore(tmp_path / name, SECRET), []
        before = now().timestamp()
        create_backup(
            app.state.database, app.state.store, place, SECRET, lambda _, steps=steps: steps.append(now())
        )
        shown = scrape().of("backup_state_timestamp_seconds")
        assert shown is not None and before <= shown <= steps[0].timestamp()
    with scene.database.read() as session:
        assert session.scalar(select(func.count()).select_from(CompletedBackup)) == 1
