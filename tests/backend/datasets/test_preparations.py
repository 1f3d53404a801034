"""Preparations: from a version to tokens, by the jobs of the workers."""

import hashlib
import threading
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import undefer

from tests.backend.conftest import Site, also_in_bucket
from tests.backend.datasets.dataset_editor import DatasetEditor, Json, letters, lines
from tests.backend.datasets.row_jobs import run_next_job
from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.data_spec import DataSpec, TokenizerSpec
from trainwright.contracts.token_shards import ShardManifest
from trainwright.prepare import chunks
from trainwright.prepare.documents import UnusableDataError
from trainwright.prepare.token_shards import Cancelled
from trainwright.prepare.tokenizer import byte_tokenizer, tokenizer_bytes
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.errors import Busy, Invalid
from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.core.message_queue import TASKS_KEY_PREFIX, TASKS_QUEUE, Enqueuer, celery_app
from trainwright_backend.core.settings import Settings
from trainwright_backend.datasets import job_queue
from trainwright_backend.datasets.data_resolution import resolve_data
from trainwright_backend.datasets.job_queue import JOB_TASK, JobKind, resend_stale
from trainwright_backend.datasets.jobs import (
    dispatch,
    job,
    leases,
    outcomes,
    preparation_jobs,
    preparation_plan,
    runner,
    tasks,
)
from trainwright_backend.datasets.jobs.preparation_completion import complete_preparation
from trainwright_backend.datasets.jobs.runner import JobRunner
from trainwright_backend.datasets.preparations import preparation_files
from trainwright_backend.datasets.tables import DatasetVersion, ParsedFile, Preparation, PreparationChunk


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 20 documents instead of 50,000."""
    monkeypatch.setattr(chunks, "CHUNK_DOCUMENTS", 20)


@pytest.fixture
def sent(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Arguments of the messages that were sent."""
    found: list[list[str]] = []

    def send(self: Enqueuer, name: str, arguments: list[str]) -> bool:
        assert name == JOB_TASK
        found.append(arguments)
        return True

    monkeypatch.setattr(Enqueuer, "send_task", send)
    return found


def only(site: Site) -> Preparation:
    with site.app.state.database.read() as session:
        return session.scalars(select(Preparation).options(undefer(Preparation.manifest))).one()


def make_unprepared(editor: DatasetEditor, documents: int = 200) -> Json:
    """A dataset whose version is ready and whose preparation has not started."""
    made = editor.make(ready=False, **{"letters.jsonl": letters(documents)})
    with editor.site.app.state.database.read() as session:
        ids = [
            *((JobKind.PARSE, row_id) for row_id in session.scalars(select(ParsedFile.id))),
            *((JobKind.CURATE, row_id) for row_id in session.scalars(select(DatasetVersion.id))),
        ]
    for wanted in ids:
        assert run_next_job(editor.site.app.state.database, editor.site.app.state.store, *wanted)
    return made


def run_one_job(site: Site, preparation: Preparation) -> bool:
    return run_next_job(site.app.state.database, site.app.state.store, JobKind.PREPARE, preparation.id)


def take(site: Site, preparation: Preparation) -> dispatch.Job | None:
    """Take a job, as a worker that is killed right after it."""
    with site.app.state.database.write() as session:
        return dispatch.next_job(session, JobKind.PREPARE, preparation.id)


def resend(site: Site) -> int:
    with site.app.state.database.write() as session:
        return resend_stale(session)


def expire_leases(site: Site) -> None:
    """Let all leases expire."""
    with site.app.state.database.write() as session:
        past = now() - timedelta(minutes=5)
        for table in (PreparationChunk, Preparation):
            session.execute(update(table).values(leased_until=past).where(table.lease.is_not(None)))
        session.execute(update(Preparation).values(last_activity=past))


@also_in_bucket
def test_a_version_is_prepared_into_the_shards_of_its_manifest(
    editor: DatasetEditor, small_chunks: None
) -> None:
    dataset = editor.make(**{"letters.jsonl": letters()})
    (shown,) = dataset["versions"][0]["preparations"]
    assert shown["state"] == "ready" and shown["documents"] == 200 and shown["rejected"] == 0
    assert shown["shards_done"] == shown["shards_total"] == 10
    assert shown["tokens_done"] == shown["train_tokens"] + shown["validation_tokens"]
    assert sum(length["documents"] for length in shown["lengths"]) == 200
    files = preparation_files(only(editor.site))
    assert [file.name for file in files][:2] == ["manifest.json", "tokenizer.json"]
    store: LocalStore = editor.site.app.state.store
    for file in files:
        stored = store.read(file.object_key)
        assert (len(stored), hashlib.sha256(stored).hexdigest()) == (file.bytes, file.digest)
    manifest = ShardManifest.model_validate_json(store.read(files[0].object_key))
    assert manifest.train.tokens == shown["train_tokens"] > 0
    assert {shard.name for shard in manifest.train.shards} <= {file.name for file in files}


def test_only_kept_documents_become_tokens(editor: DatasetEditor, small_chunks: None) -> None:
    texts = [f"text {number % 30:02d}" for number in range(90)]
    curation = {"drop_duplicates": True, "rules": {"min_characters": 7}}
    made = editor.make("kept", curation, **{"a.jsonl": lines(*texts, "short", "no")})
    asked = {"tokenizer": {"kind": "bytes"}, "validation_fraction": 0.0}
    assert editor.post(f"datasets/{made['id']}/preparations", asked).status_code == 202
    shown = editor.ready(made)["versions"][0]["preparations"][1]
    assert (shown["documents"], shown["train_tokens"], shown["shards_total"]) == (30, 30 * 8, 2)


def test_each_job_sends_a_message_for_the_next_and_the_last_sends_none(
    editor: DatasetEditor, sent: list[list[str]], small_chunks: None
) -> None:
    editor.make(ready=False, **{"letters.jsonl": letters()})
    kinds: list[str] = []
    while sent:
        kind, row_id = sent.pop()
        if run_next_job(
            editor.site.app.state.database, editor.site.app.state.store, JobKind(kind), UUID(row_id)
        ):
            kinds.append(kind)
    assert only(editor.site).state == PreparationState.READY
    assert kinds == ["parse", "curate", *["prepare"] * (1 + 10 + 1)]


@pytest.mark.both_databases
def test_two_submissions_with_the_same_input_share_a_preparation(editor: DatasetEditor) -> None:
    dataset = editor.make(ready=False, **{"letters.jsonl": letters()})
    asked = DataSpec(dataset=dataset["id"])
    other = DataSpec(dataset=dataset["id"], tokenizer=TokenizerSpec(kind="bytes"))
    with editor.site.app.state.database.write() as session:
        resolved, first = resolve_data(session, editor.team_id, asked)
        _, again = resolve_data(session, editor.team_id, asked)
        explicit = asked.model_copy(update={"tokenizer": TokenizerSpec(vocabulary=4096)})
        _, same = resolve_data(session, editor.team_id, explicit)
        _, different = resolve_data(session, editor.team_id, other)
        assert resolved.version == 1
        assert first.id == again.id == same.id != different.id
    shown = editor.ready(dataset)["versions"][0]["preparations"]
    assert [item["state"] for item in shown] == ["ready", "ready"]
    assert shown[1]["train_tokens"] > shown[0]["train_tokens"], "bytes are more tokens than BPE"


@pytest.mark.parametrize(
    ("change", "field"),
    [({"dataset": "nonsense"}, "data.dataset"), ({"version": 2}, "data.version")],
)
def test_data_that_does_not_exist_is_named(editor: DatasetEditor, change: Json, field: str) -> None:
    dataset = editor.make(ready=False, **{"letters.jsonl": letters()})
    asked = DataSpec.model_validate({"dataset": dataset["id"]} | change)
    with pytest.raises(Invalid) as refused, editor.site.app.state.database.write() as session:
        resolve_data(session, editor.team_id, asked)
    assert [problem.field for problem in refused.value.errors] == [field]


def test_a_killed_worker_costs_only_its_chunk(
    editor: DatasetEditor, sent: list[list[str]], small_chunks: None
) -> None:
    make_unprepared(editor)
    site, preparation = editor.site, only(editor.site)
    assert run_one_job(site, preparation) and run_one_job(site, preparation)  # the plan and one chunk
    dead = take(site, preparation)
    assert isinstance(dead, preparation_jobs.TokenizeChunk)
    while run_one_job(site, preparation):
        pass
    assert only(site).shards_done == 9
    sent.clear()
    assert resend(site) == 0, "its lease is still valid"
    expire_leases(site)
    assert resend(site) == 1 and sent == [["prepare", str(preparation.id)]]
    assert resend(site) == 0, "sent periodically, not at every sweep"
    while run_one_job(site, preparation):
        pass
    assert only(site).state == PreparationState.READY
    # The worker was not dead, only frozen. Its result changes nothing.
    dispatch.run_job(site.app.state.database, site.app.state.store, dead)
    assert only(site).shards_done == 10


def test_lost_messages_are_sent_again(editor: DatasetEditor, sent: list[list[str]]) -> None:
    """One message of each kind, in order."""
    editor.make(ready=False, **{"letters.jsonl": letters()})
    database: Database = editor.site.app.state.database
    order = []
    while True:
        sent.clear()
        with database.write() as session:
            for table in (ParsedFile, DatasetVersion, Preparation):
                session.execute(update(table).values(last_activity=now() - job_queue.STALE_AFTER * 2))
        if not resend(editor.site):
            break
        ((kind, row_id),) = sent
        order.append(kind)
        assert run_next_job(database, editor.site.app.state.store, JobKind(kind), UUID(row_id))
    assert order == ["parse", "curate", *["prepare"] * 3]
    assert only(editor.site).state == PreparationState.READY


def test_a_chunk_that_kills_its_workers_fails_the_preparation_until_it_is_requested_again(
    editor: DatasetEditor, sent: list[list[str]]
) -> None:
    dataset = make_unprepared(editor)
    site, preparation = editor.site, only(editor.site)
    run_one_job(site, preparation)
    for _ in range(leases.MAX_EXPIRED_LEASES):
        assert isinstance(take(site, preparation), preparation_jobs.TokenizeChunk)
        expire_leases(site)
    assert not run_one_job(site, preparation)
    assert only(site).state == PreparationState.FAILED
    assert "3 workers in a row died while processing documents 0 to 199" in str(only(site).error)
    assert editor.post(f"datasets/{dataset['id']}/preparations").status_code == 202
    assert only(site).state == PreparationState.WORKING
    site.prepare()
    assert only(site).state == PreparationState.READY


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_job_is_tried_three_times_after_errors(
    editor: DatasetEditor, sent: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = make_unprepared(editor)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_job", full)
        states = []
        for _ in range(leases.MAX_FAILURES):
            assert run_one_job(editor.site, only(editor.site))
            states.append(only(editor.site).state)
    assert states == ["waiting", "waiting", "failed"]
    assert "No space left on device" in str(only(editor.site).error)
    editor.post(f"datasets/{dataset['id']}/preparations")
    editor.site.prepare()
    assert only(editor.site).state == PreparationState.READY


@pytest.mark.parametrize(
    ("kind", "verb"), [(JobKind.PARSE, "Reading"), (JobKind.CURATE, "Applying the curation")]
)
def test_a_version_that_failed_by_worker_errors_can_be_created_again(
    editor: DatasetEditor, kind: JobKind, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = editor.make(ready=False, **{"a.jsonl": letters()})
    database, store = editor.site.app.state.database, editor.site.app.state.store
    with database.read() as session:
        rows = {
            JobKind.PARSE: session.scalars(select(ParsedFile.id)).one(),
            JobKind.CURATE: session.scalars(select(DatasetVersion.id)).one(),
        }
    if kind is JobKind.CURATE:
        assert run_next_job(database, store, JobKind.PARSE, rows[JobKind.PARSE])
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_job", full)
        for _ in range(leases.MAX_FAILURES):
            assert run_next_job(database, store, kind, rows[kind])
    (version,) = editor.ready(made)["versions"]
    assert version["state"] == "failed" and f"{verb} failed 3 times" in version["error"]
    assert "create the version again" in version["error"]
    again = editor.add(made)
    assert [version["state"] for version in again["versions"]] == ["ready", "failed"]


def test_errors_between_successful_jobs_do_not_add_up(
    editor: DatasetEditor, sent: list[list[str]], small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_unprepared(editor)
    while only(editor.site).state != PreparationState.READY:
        with monkeypatch.context() as patch:
            patch.setattr(runner, "run_job", full)
            assert run_one_job(editor.site, only(editor.site))
        assert run_one_job(editor.site, only(editor.site))
    assert (only(editor.site).shards_total or 0) > leases.MAX_FAILURES


@pytest.mark.both_databases
def test_a_busy_database_does_not_count_as_a_failure(
    editor: DatasetEditor, sent: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise Busy("database_busy", "Not now.")

    make_unprepared(editor)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_job", busy)
        for _ in range(leases.MAX_FAILURES + 1):
            assert run_one_job(editor.site, only(editor.site)), "the job was returned immediately"
    assert only(editor.site).failures == 0
    editor.site.prepare()
    assert only(editor.site).state == PreparationState.READY


@pytest.mark.both_databases
def test_a_worker_without_its_lease_cannot_mark_a_failure(
    editor: DatasetEditor, sent: list[list[str]], small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unusable(*_: object) -> None:
        raise UnusableDataError("the error of a slow worker")

    make_unprepared(editor)
    site, preparation = editor.site, only(editor.site)
    database: Database = site.app.state.database
    run_one_job(site, preparation)
    slow = take(site, preparation)
    assert slow is not None
    expire_leases(site)
    site.prepare()
    with database.write() as session:
        session.execute(update(Preparation).values(state=PreparationState.WORKING))
    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "tokenize_chunk", unusable)
        dispatch.run_job(database, site.app.state.store, slow)
    outcomes.record_failure(database, slow, OSError("late"))
    assert (only(site).state, only(site).failures) == (PreparationState.WORKING, 0)


@pytest.mark.both_databases
def test_a_preparation_deleted_during_its_job_leaves_no_objects(
    editor: DatasetEditor, sent: list[list[str]]
) -> None:
    dataset = make_unprepared(editor)
    site, preparation = editor.site, only(editor.site)
    run_one_job(site, preparation)
    step = take(site, preparation)
    assert isinstance(step, preparation_jobs.TokenizeChunk)
    store: LocalStore = site.app.state.store
    sources = {key: store.read(key) for key in (step.chunk.chunk_key, step.chunk.mask_key)}
    assert editor.delete(f"datasets/{dataset['id']}").status_code == 204
    for key, content in sources.items():  # as if they were still being read
        store.write(key, content)
    store.write(f"{step.folder}/tokenizer.json", tokenizer_bytes(byte_tokenizer()))
    dispatch.run_job(site.app.state.database, store, step)
    assert not store.path_of(step.folder).exists()


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_concurrent_workers_tokenize_each_chunk_once(editor: DatasetEditor, small_chunks: None) -> None:
    make_unprepared(editor)
    site, preparation = editor.site, only(editor.site)
    run_one_job(site, preparation)
    made: list[int] = []
    lock = threading.Lock()

    def work_on() -> None:
        while run_one_job(site, preparation):
            with lock:
                made.append(1)

    threads = [threading.Thread(target=work_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while run_one_job(site, preparation):
        made.append(1)
    found = only(site)
    assert found.state == PreparationState.READY and found.shards_total == found.shards_done == 10
    assert len(made) == 10 + 1


@pytest.mark.both_databases
def test_a_lease_is_renewed_while_its_job_runs(
    editor: DatasetEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.01)
    make_unprepared(editor)
    site = editor.site
    step = take(site, only(site))
    assert step is not None
    expire_leases(site)
    with leases.held_lease(site.app.state.database, step.lease):
        while (until := only(site).leased_until) is None or until < now():
            pass


def test_cancelling_stops_the_current_job_and_a_later_request_continues(
    editor: DatasetEditor, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.01)
    dataset = make_unprepared(editor)
    site, preparation = editor.site, only(editor.site)
    for _ in range(4):  # the plan and three chunks
        assert run_one_job(site, preparation)
    path = f"datasets/{dataset['id']}/preparations"
    shown = dataset["versions"][0]["preparations"][0]
    step = take(site, preparation)
    assert step is not None
    with leases.held_lease(site.app.state.database, step.lease) as is_cancelled:
        cancelled = editor.post(f"{path}/{shown['id']}/cancel").json()
        assert (cancelled["state"], cancelled["shards_done"]) == ("cancelled", 3)
        while not is_cancelled():
            pass
    dispatch.run_job(
        site.app.state.database, site.app.state.store, step
    )  # stops immediately, or had finished already
    assert not run_one_job(site, preparation)
    assert editor.post(f"{path}/{shown['id']}/cancel").json()["state"] == "cancelled"
    assert resend(site) == 0
    again = editor.post(path)
    assert (again.status_code, again.json()["id"], again.json()["state"]) == (202, shown["id"], "working")
    assert again.json()["shards_done"] >= 3, "finished chunks are kept"
    site.prepare()
    assert only(site).state == PreparationState.READY
    done = editor.post(f"{path}/{shown['id']}/cancel")
    assert (done.status_code, done.json()["code"]) == (409, "preparation_ended")


def test_a_cancelled_job_keeps_its_lease_until_it_has_stopped(
    editor: DatasetEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.01)
    dataset = make_unprepared(editor)
    site = editor.site
    step = take(site, only(site))
    assert step is not None
    path = f"datasets/{dataset['id']}/preparations/{dataset['versions'][0]['preparations'][0]['id']}/cancel"
    with leases.held_lease(site.app.state.database, step.lease) as is_cancelled:
        assert editor.post(path).json()["state"] == "cancelled"
        while not is_cancelled():
            pass
        expire_leases(site)
        while (until := only(site).leased_until) is None or until < now():
            pass


def test_cancelling_interrupts_the_sample_of_a_tokenizer(editor: DatasetEditor) -> None:
    make_unprepared(editor)
    site, asked = editor.site, list[None]()
    step = take(site, only(site))
    assert isinstance(step, preparation_jobs.PlanPreparation)

    def is_cancelled() -> bool:
        asked.append(None)
        return len(asked) == 4

    with pytest.raises(job.JobCancelledError):
        preparation_plan.plan_preparation(site.app.state.database, site.app.state.store, step, is_cancelled)
    assert len(asked) == 4 and not [key for key in editor.stored() if key.startswith(step.folder)]


def test_cancelling_interrupts_the_completion(editor: DatasetEditor) -> None:
    """Before a shard is split for validation, before each shard is stored, and before the manifest."""
    make_unprepared(editor, documents=2)
    site, asked = editor.site, list[None]()
    database, store = site.app.state.database, site.app.state.store
    while not isinstance(step := take(site, only(site)), preparation_jobs.CompletePreparation):
        assert step is not None
        dispatch.run_job(database, store, step)
    before = editor.stored()
    for moment in range(1, 5):
        asked.clear()
        with pytest.raises((job.JobCancelledError, Cancelled)):
            complete_preparation(database, store, step, partial(cancelled_at, moment, asked))
        assert len(editor.stored()) - len(before) == max(0, moment - 2), "what was stored until then"
    assert complete_preparation(database, store, step, lambda: False) is None
    assert only(site).state == PreparationState.READY and only(site).validation_from_tail


def cancelled_at(moment: int, calls: list[None]) -> bool:
    """Report a cancellation at call number ``moment``."""
    calls.append(None)
    return len(calls) == moment


def test_a_preparation_that_runs_need_is_not_cancelled(editor: DatasetEditor) -> None:
    dataset = editor.make(ready=False, **{"letters.jsonl": letters()})
    spec = {"name": "waiting run", "data": {"dataset": dataset["id"]}, "resources": {"device": "cpu"}}
    run = editor.post("runs", spec).json()
    path = f"datasets/{dataset['id']}/preparations/{dataset['versions'][0]['preparations'][0]['id']}/cancel"
    response = editor.post(path)
    assert (response.status_code, response.json()["runs"]) == (409, ["waiting run"])
    assert editor.post(f"runs/{run['id']}/cancel").status_code == 202
    assert editor.post(path).json()["state"] == "cancelled"
    response = editor.post("runs", spec)
    assert response.status_code == 201
    assert only(editor.site).state == PreparationState.WAITING, "a submission restarts it"


def test_another_team_s_preparation_is_unknown(editor: DatasetEditor) -> None:
    one, two = (editor.make(name, ready=False, **{"a.jsonl": letters()}) for name in ("one", "two"))
    foreign = two["versions"][0]["preparations"][0]["id"]
    assert editor.post(f"datasets/{one['id']}/preparations/{foreign}/cancel").status_code == 404


@also_in_bucket
@pytest.mark.parametrize(
    "files", [{"a.jsonl": lines("the only document of all")}, {"a.txt": b"prose " * 500}]
)
def test_a_split_without_a_document_is_the_last_hundredth_of_the_tokens(
    editor: DatasetEditor, files: dict[str, bytes]
) -> None:
    made = editor.make("one", ready=False, **files)
    asked = {"tokenizer": {"kind": "bytes"}, "validation_fraction": 0.01}
    editor.post(f"datasets/{made['id']}/preparations", asked)
    shown = editor.ready(made)["versions"][0]["preparations"][1]
    tokens = len(next(iter(files.values()))) + 1 if "a.txt" in files else len("the only document of all") + 1
    assert shown["state"] == "ready" and shown["validation_from_tail"]
    assert shown["train_tokens"] + shown["validation_tokens"] == tokens
    assert shown["validation_tokens"] == max(1, tokens // 100)


def test_a_celery_worker_runs_the_jobs_of_its_messages(
    editor: DatasetEditor, settings: Settings, valkey_url: str
) -> None:
    """Real messages through a real broker, handled by the worker's code in this process."""
    with_broker = settings.model_copy(update={"tasks_url": valkey_url})
    database = Database(settings.resolved_database_url, {"enqueuer": Enqueuer(with_broker)})
    editor.make(ready=False, **{"letters.jsonl": letters()})
    with database.write() as session:
        job_queue.send_job(session, JobKind.PARSE, session.scalars(select(ParsedFile.id)).one())
    app = celery_app(valkey_url, TASKS_KEY_PREFIX)
    tasks.register_tasks(app, JobRunner(database, editor.site.app.state.store))
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue(TASKS_QUEUE)
        while only(editor.site).state in ("waiting", "working"):
            message = queue.get(timeout=10)
            app.tasks[message.headers["task"]](*message.payload[0])
            message.ack()
        queue.close()
    assert only(editor.site).state == PreparationState.READY
    database.dispose()
