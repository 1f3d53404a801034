"""From upload to tokens: by the steps that a worker makes, and by the rows that say what is done."""

import hashlib
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, update

from tests.backend.conftest import Site
from trainwright.contracts.api import PreparationState
from trainwright.contracts.run_spec import DataSpec, TokenizerSpec
from trainwright.contracts.shards import ShardManifest
from trainwright.prepare import documents
from trainwright.prepare.tokenizer import byte_tokenizer
from trainwright_backend.auth.tables import Team
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.enqueue import TASKS_KEY_PREFIX, TASKS_QUEUE, Enqueuer, celery_app
from trainwright_backend.core.errors import Busy, Invalid
from trainwright_backend.core.settings import Settings
from trainwright_backend.datasets import preparations, tasks, work
from trainwright_backend.datasets.preparations import (
    PREPARE_TASK,
    preparation_files,
    resend_stale_preparations,
    resolve_data,
)
from trainwright_backend.datasets.tables import Preparation, PreparationSlice
from trainwright_backend.datasets.tasks import make_step

Upload = Callable[..., dict[str, Any]]


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of 4 KiB instead of 32 MiB."""
    monkeypatch.setattr(work, "plan_slices", lambda sources: documents.plan_slices(sources, 4096))


@pytest.fixture
def sent(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Preparation ids of the messages that were sent."""
    found: list[str] = []

    def send(self: Enqueuer, name: str, arguments: list[str]) -> bool:
        assert name == PREPARE_TASK
        found.extend(arguments)
        return True

    monkeypatch.setattr(Enqueuer, "send_task", send)
    return found


def only(site: Site) -> Preparation:
    with site.app.state.database.read() as session:
        return session.scalars(select(Preparation)).one()


def team_id(site: Site) -> UUID:
    with site.app.state.database.read() as session:
        return session.scalars(select(Team.id).where(Team.slug == site.team)).one()


def step_once(site: Site, preparation: Preparation) -> bool:
    return make_step(site.app.state.database, site.app.state.store, preparation.id)


def resend(site: Site) -> int:
    with site.app.state.database.write() as session:
        return resend_stale_preparations(session)


def test_an_upload_is_prepared_into_shards_that_the_manifest_describes(
    site: Site, upload: Upload, small_slices: None
) -> None:
    dataset = upload()
    (shown,) = dataset["versions"][0]["preparations"]
    assert shown["state"] == "ready" and shown["documents"] == 200 and shown["rejected"] == 0
    assert shown["shards_done"] == shown["shards_total"] > 5
    files = preparation_files(only(site))
    assert [file.name for file in files][:2] == ["manifest.json", "tokenizer.json"]
    store = site.app.state.store
    for file in files:
        stored = store.read(file.object_key)
        assert (len(stored), hashlib.sha256(stored).hexdigest()) == (file.bytes, file.digest)
    manifest = ShardManifest.model_validate_json(store.read(files[0].object_key))
    assert manifest.train.tokens == shown["train_tokens"] > 0
    assert {shard.name for shard in manifest.train.shards} <= {file.name for file in files}


def test_each_step_sends_for_the_next_and_the_last_for_none(
    site: Site, upload: Upload, sent: list[str], small_slices: None
) -> None:
    upload(ready=False)
    preparation = only(site)
    assert sent == [str(preparation.id)]
    steps = 0
    while sent:
        sent.pop()
        steps += step_once(site, preparation)
    assert only(site).state == PreparationState.READY
    slices = only(site).shards_total
    assert slices is not None and steps == 1 + slices + 1


def test_two_submissions_that_ask_for_the_same_get_the_same(site: Site, upload: Upload) -> None:
    dataset = upload(ready=False)
    asked = DataSpec(dataset=dataset["id"])
    other = DataSpec(dataset=dataset["id"], tokenizer=TokenizerSpec(kind="bytes"))
    with site.app.state.database.write() as session:
        resolved, first = resolve_data(session, team_id(site), asked)
        _, again = resolve_data(session, team_id(site), asked)
        explicit = asked.model_copy(update={"tokenizer": TokenizerSpec(vocabulary=4096)})
        _, same = resolve_data(session, team_id(site), explicit)
        _, different = resolve_data(session, team_id(site), other)
        assert resolved.version == 1
        assert first.id == again.id == same.id != different.id
    site.prepare()
    shown = site.admin.get(f"{site.path}/datasets/{dataset['id']}").json()["versions"][0]["preparations"]
    assert [item["state"] for item in shown] == ["ready", "ready"]
    assert shown[1]["train_tokens"] > shown[0]["train_tokens"], "bytes are more tokens than BPE"


@pytest.mark.parametrize(
    ("change", "field"),
    [({"dataset": "nonsense"}, "data.dataset"), ({"version": 2}, "data.version")],
)
def test_data_that_does_not_exist_is_named(
    site: Site, upload: Upload, change: dict[str, Any], field: str
) -> None:
    asked = DataSpec.model_validate({"dataset": upload(ready=False)["id"]} | change)
    with pytest.raises(Invalid) as refused, site.app.state.database.write() as session:
        resolve_data(session, team_id(site), asked)
    assert [problem.field for problem in refused.value.errors] == [field]


def test_bad_documents_are_counted_and_listed_with_their_lines(
    site: Site, upload: Upload, small_slices: None
) -> None:
    good = json.dumps({"text": "word " * 50}).encode() + b"\n"
    lines = [good] * 300
    wrong = {10: b"not json\n", 150: b'{"txt": "x"}\n', 299: b'{"text": ""}\n', 250: b"\xff\xfe\n"}
    for number, line in wrong.items():
        lines[number - 1] = line
    dataset = upload(**{"a.jsonl": b"".join(lines)})
    (shown,) = dataset["versions"][0]["preparations"]
    assert (shown["documents"], shown["rejected"]) == (296, 4)
    listed = site.admin.get(f"{site.path}/datasets/{dataset['id']}/versions/1/rejected").json()
    assert [(item["file"], item["line"]) for item in listed] == [
        ("a.jsonl", number) for number in sorted(wrong)
    ]
    assert [item["reason"] for item in listed][:2] == [
        "is not a JSON object",
        "has no string under the key 'text'",
    ]


def test_the_list_of_bad_documents_ends_at_a_thousand_and_the_count_does_not(
    site: Site, upload: Upload, small_slices: None
) -> None:
    dataset = upload(**{"a.jsonl": b"bad\n" * 3000 + b'{"text": "good"}\n' * 20})
    assert dataset["versions"][0]["preparations"][0]["rejected"] == 3000
    listed = site.admin.get(f"{site.path}/datasets/{dataset['id']}/versions/1/rejected").json()
    assert [item["line"] for item in listed] == list(range(1, 1001))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"bad\nworse\n", "No usable document was found: all 2 lines were refused"),
        (b" \n \n", "nothing but white space"),
    ],
)
def test_a_preparation_without_a_document_fails_with_a_sentence(
    site: Site, upload: Upload, content: bytes, sentence: str
) -> None:
    dataset = upload(**{"a.jsonl": content})
    (shown,) = dataset["versions"][0]["preparations"]
    assert shown["state"] == "failed" and sentence in shown["error"]
    with site.app.state.database.write() as session:
        _, again = resolve_data(session, team_id(site), DataSpec(dataset=dataset["id"]))
        assert again.state == PreparationState.FAILED, "the same data would fail again"


@pytest.mark.parametrize(
    ("name", "said", "unsaid"), [("a.jsonl", ".jsonl", ".txt"), ("a.txt", "UTF-8", ".jsonl")]
)
def test_a_refusal_names_the_rule_of_the_files_that_were_sent(
    site: Site, upload: Upload, name: str, said: str, unsaid: str
) -> None:
    dataset = upload(**{name: b"\xff\xfe\n"})
    error = dataset["versions"][0]["preparations"][0]["error"]
    assert said in error and unsaid not in error


def test_a_killed_worker_costs_its_slice_only(
    site: Site, upload: Upload, sent: list[str], small_slices: None
) -> None:
    database: Database = site.app.state.database
    upload(ready=False)
    preparation = only(site)
    assert step_once(site, preparation) and step_once(site, preparation)  # planned, and one slice
    with database.write() as session:
        dead = work.next_step(session, preparation.id)  # takes the next slice and is killed
    assert isinstance(dead, work.Tokenize)
    while step_once(site, preparation):
        pass
    total = only(site).shards_total
    assert total is not None and only(site).shards_done == total - 1
    sent.clear()
    assert resend(site) == 0, "its lease still stands"
    with database.write() as session:
        past = now() - timedelta(minutes=5)
        session.execute(
            update(PreparationSlice).values(leased_until=past).where(PreparationSlice.lease.is_not(None))
        )
        session.execute(update(Preparation).values(touched=past))
    assert resend(site) == 1 and sent == [str(preparation.id)]
    assert resend(site) == 0, "sent once in a while, not at every sweep"
    while step_once(site, preparation):
        pass
    assert only(site).state == PreparationState.READY
    # The dead one was only frozen: what it brings now changes nothing.
    work.do_step(database, site.app.state.store, dead)
    assert only(site).shards_done == total


def test_lost_messages_are_sent_again(site: Site, upload: Upload, sent: list[str]) -> None:
    upload(ready=False)
    sent.clear()
    with site.app.state.database.write() as session:
        session.execute(update(Preparation).values(touched=now() - preparations.SILENCE * 2))
    assert resend(site) == 1 and len(sent) == 1


def test_a_slice_that_kills_its_workers_ends_the_preparation_until_somebody_asks_again(
    site: Site, upload: Upload, sent: list[str]
) -> None:
    database: Database = site.app.state.database
    dataset = upload(ready=False)
    preparation = only(site)
    step_once(site, preparation)
    for _ in range(work.MOST_LOST_LEASES):
        with database.write() as session:
            assert isinstance(work.next_step(session, preparation.id), work.Tokenize)
        with database.write() as session:
            session.execute(update(PreparationSlice).values(leased_until=now() - timedelta(seconds=1)))
    assert not step_once(site, preparation)
    assert only(site).state == PreparationState.FAILED
    assert "3 workers in a row died over letters.jsonl" in str(only(site).error)
    with database.write() as session:
        resolve_data(session, team_id(site), DataSpec(dataset=dataset["id"]))
    assert only(site).state == PreparationState.WORKING
    site.prepare()
    assert only(site).state == PreparationState.READY


def test_an_error_of_the_worker_is_tried_three_times(
    site: Site, upload: Upload, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    upload(ready=False)
    preparation = only(site)
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "do_step", full)
        states = []
        for _ in range(work.MOST_FAILURES):
            assert step_once(site, preparation)
            states.append(only(site).state)
    assert states == ["waiting", "waiting", "failed"]
    assert "No space left on device" in str(only(site).error)


def test_errors_between_steps_that_succeed_never_add_up(
    site: Site, upload: Upload, sent: list[str], small_slices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    upload(ready=False)
    preparation = only(site)
    while only(site).state != PreparationState.READY:
        with monkeypatch.context() as patch:
            patch.setattr(tasks, "do_step", full)
            assert step_once(site, preparation)
        assert step_once(site, preparation)
    assert (only(site).shards_total or 0) > work.MOST_FAILURES


def test_a_database_that_is_busy_is_no_failure_of_the_data(
    site: Site, upload: Upload, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise Busy("database_busy", "Not now.")

    upload(ready=False)
    preparation = only(site)
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "do_step", busy)
        for _ in range(work.MOST_FAILURES + 1):
            assert step_once(site, preparation), "the step was put back at once"
    assert only(site).failures == 0
    site.prepare()
    assert only(site).state == PreparationState.READY


def test_a_worker_that_lost_its_lease_fails_nothing(
    site: Site, upload: Upload, sent: list[str], small_slices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unusable(*_: object) -> None:
        raise documents.UnusableDataError("a slow worker's opinion")

    database: Database = site.app.state.database
    upload(ready=False)
    preparation = only(site)
    step_once(site, preparation)
    with database.write() as session:
        slow = work.next_step(session, preparation.id)
        assert slow is not None
        session.execute(update(PreparationSlice).values(leased_until=now() - timedelta(seconds=1)))
    site.prepare()
    with database.write() as session:
        session.execute(update(Preparation).values(state=PreparationState.WORKING))
    with monkeypatch.context() as patch:
        patch.setattr(work, "_tokenize", unusable)
        work.do_step(database, site.app.state.store, slow)
    work.note_failure(database, slow, OSError("late"))
    assert (only(site).state, only(site).failures) == (PreparationState.WORKING, 0)


def test_a_preparation_that_was_deleted_under_its_worker_leaves_no_bytes(
    site: Site, upload: Upload, sent: list[str]
) -> None:
    dataset = upload(ready=False)
    preparation = only(site)
    step_once(site, preparation)
    with site.app.state.database.write() as session:
        step = work.next_step(session, preparation.id)
    assert step is not None
    source = {key: site.app.state.store.read(key) for _, key in step.files}
    assert site.admin.delete(f"{site.path}/datasets/{dataset['id']}").status_code == 204
    store = site.app.state.store
    for key, content in source.items():  # as if the file was still being read
        store.write(key, content)
    store.write(f"{step.folder}/tokenizer.json", work.tokenizer_bytes(byte_tokenizer()))
    work.do_step(site.app.state.database, store, step)
    assert not store.path_of(step.folder).exists()


def test_many_workers_at_once_do_each_slice_once(site: Site, upload: Upload, small_slices: None) -> None:
    upload(ready=False)
    preparation = only(site)
    step_once(site, preparation)
    made: list[int] = []
    lock = threading.Lock()

    def work_on() -> None:
        while step_once(site, preparation):
            with lock:
                made.append(1)

    threads = [threading.Thread(target=work_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while step_once(site, preparation):
        made.append(1)
    found = only(site)
    assert found.state == PreparationState.READY and found.shards_total == found.shards_done
    assert len(made) == (found.shards_total or 0) + 1


def test_a_lease_is_renewed_while_its_step_runs(
    site: Site, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "RENEWAL_SECONDS", 0.01)
    database: Database = site.app.state.database
    upload(ready=False)
    preparation = only(site)
    with database.write() as session:
        step = work.next_step(session, preparation.id)
        assert step is not None
    with database.write() as session:
        session.execute(update(Preparation).values(leased_until=now() - timedelta(seconds=1)))
    with work._kept(database, step):
        while (until := only(site).leased_until) is None or until < now():
            pass


def test_a_celery_worker_prepares_what_was_sent(
    site: Site, upload: Upload, settings: Settings, valkey_url: str
) -> None:
    """The real message, through a real broker, handled by a worker's own code in this process."""
    with_broker = settings.model_copy(update={"tasks_url": valkey_url})
    database = Database(settings.resolved_database_url, {"enqueuer": Enqueuer(with_broker)})
    upload(ready=False)
    with database.write() as session:
        preparations.send_messages(session, only(site).id, 1)
    app = celery_app(valkey_url, TASKS_KEY_PREFIX)
    tasks.register_tasks(app, database, site.app.state.store)
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue(TASKS_QUEUE)
        while only(site).state in ("waiting", "working"):
            message = queue.get(timeout=10)
            app.tasks[message.headers["task"]](*message.payload[0])
            message.ack()
        queue.close()
    assert only(site).state == PreparationState.READY
    database.dispose()
