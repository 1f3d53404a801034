"""From a version to tokens: by the steps that a worker makes, and by the rows that say what is done."""

import hashlib
import threading
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import undefer

from tests.backend.conftest import Site
from tests.backend.datasets.desk import Desk, Json, letters, lines
from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.data_spec import DataSpec, TokenizerSpec
from trainwright.contracts.shards import ShardManifest
from trainwright.prepare import pieces
from trainwright.prepare.documents import UnusableDataError
from trainwright.prepare.shards import Cancelled
from trainwright.prepare.tokenizer import byte_tokenizer, tokenizer_bytes
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.enqueue import TASKS_KEY_PREFIX, TASKS_QUEUE, Enqueuer, celery_app
from trainwright_backend.core.errors import Busy, Invalid
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets import leases, messages, steps, tasks, work, work_preparations
from trainwright_backend.datasets.messages import STEP_TASK, Work, resend_stale
from trainwright_backend.datasets.preparations import preparation_files
from trainwright_backend.datasets.resolution import resolve_data
from trainwright_backend.datasets.tables import DatasetVersion, Preparation, PreparationSlice, Reading
from trainwright_backend.datasets.tasks import make_step
from trainwright_backend.datasets.work_completion import complete


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 20 documents instead of 50,000."""
    monkeypatch.setattr(pieces, "PIECE_DOCUMENTS", 20)


@pytest.fixture
def sent(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Arguments of the messages that were sent."""
    found: list[list[str]] = []

    def send(self: Enqueuer, name: str, arguments: list[str]) -> bool:
        assert name == STEP_TASK
        found.append(arguments)
        return True

    monkeypatch.setattr(Enqueuer, "send_task", send)
    return found


def only(site: Site) -> Preparation:
    with site.app.state.database.read() as session:
        return session.scalars(select(Preparation).options(undefer(Preparation.manifest))).one()


def unprepared(desk: Desk, documents: int = 200) -> Json:
    """A dataset whose version is ready and whose preparation nobody has begun."""
    made = desk.make(ready=False, **{"letters.jsonl": letters(documents)})
    with desk.site.app.state.database.read() as session:
        ids = [
            *((Work.READ, row_id) for row_id in session.scalars(select(Reading.id))),
            *((Work.SURVEY, row_id) for row_id in session.scalars(select(DatasetVersion.id))),
        ]
    for wanted in ids:
        assert make_step(desk.site.app.state.database, desk.site.app.state.store, *wanted)
    return made


def step_once(site: Site, preparation: Preparation) -> bool:
    return make_step(site.app.state.database, site.app.state.store, Work.PREPARE, preparation.id)


def take(site: Site, preparation: Preparation) -> work.Step | None:
    """What a worker does that is killed right after it has taken a step on."""
    with site.app.state.database.write() as session:
        return work.next_step(session, Work.PREPARE, preparation.id)


def resend(site: Site) -> int:
    with site.app.state.database.write() as session:
        return resend_stale(session)


def lapse(site: Site) -> None:
    """As if every lease that somebody holds had run out."""
    with site.app.state.database.write() as session:
        past = now() - timedelta(minutes=5)
        for table in (PreparationSlice, Preparation):
            session.execute(update(table).values(leased_until=past).where(table.lease.is_not(None)))
        session.execute(update(Preparation).values(touched=past))


def test_a_version_is_prepared_into_shards_that_the_manifest_describes(
    desk: Desk, small_pieces: None
) -> None:
    dataset = desk.make(**{"letters.jsonl": letters()})
    (shown,) = dataset["versions"][0]["preparations"]
    assert shown["state"] == "ready" and shown["documents"] == 200 and shown["rejected"] == 0
    assert shown["shards_done"] == shown["shards_total"] == 10
    assert shown["tokens_done"] == shown["train_tokens"] + shown["validation_tokens"]
    assert sum(one["documents"] for one in shown["lengths"]) == 200
    files = preparation_files(only(desk.site))
    assert [file.name for file in files][:2] == ["manifest.json", "tokenizer.json"]
    store: LocalStore = desk.site.app.state.store
    for file in files:
        stored = store.read(file.object_key)
        assert (len(stored), hashlib.sha256(stored).hexdigest()) == (file.bytes, file.digest)
    manifest = ShardManifest.model_validate_json(store.read(files[0].object_key))
    assert manifest.train.tokens == shown["train_tokens"] > 0
    assert {shard.name for shard in manifest.train.shards} <= {file.name for file in files}


def test_only_kept_documents_become_tokens(desk: Desk, small_pieces: None) -> None:
    texts = [f"text {number % 30:02d}" for number in range(90)]
    recipe = {"drop_duplicates": True, "rules": {"min_characters": 7}}
    made = desk.make("kept", recipe, **{"a.jsonl": lines(*texts, "short", "no")})
    asked = {"tokenizer": {"kind": "bytes"}, "validation_fraction": 0.0}
    assert desk.post(f"datasets/{made['id']}/preparations", asked).status_code == 202
    shown = desk.ready(made)["versions"][0]["preparations"][1]
    assert (shown["documents"], shown["train_tokens"], shown["shards_total"]) == (30, 30 * 8, 2)


def test_each_step_sends_for_the_next_and_the_last_for_none(
    desk: Desk, sent: list[list[str]], small_pieces: None
) -> None:
    desk.make(ready=False, **{"letters.jsonl": letters()})
    kinds: list[str] = []
    while sent:
        kind, row_id = sent.pop()
        if make_step(desk.site.app.state.database, desk.site.app.state.store, Work(kind), UUID(row_id)):
            kinds.append(kind)
    assert only(desk.site).state == PreparationState.READY
    assert kinds == ["read", "survey", *["prepare"] * (1 + 10 + 1)]


def test_two_submissions_that_ask_for_the_same_get_the_same(desk: Desk) -> None:
    dataset = desk.make(ready=False, **{"letters.jsonl": letters()})
    asked = DataSpec(dataset=dataset["id"])
    other = DataSpec(dataset=dataset["id"], tokenizer=TokenizerSpec(kind="bytes"))
    with desk.site.app.state.database.write() as session:
        resolved, first = resolve_data(session, desk.team_id, asked)
        _, again = resolve_data(session, desk.team_id, asked)
        explicit = asked.model_copy(update={"tokenizer": TokenizerSpec(vocabulary=4096)})
        _, same = resolve_data(session, desk.team_id, explicit)
        _, different = resolve_data(session, desk.team_id, other)
        assert resolved.version == 1
        assert first.id == again.id == same.id != different.id
    shown = desk.ready(dataset)["versions"][0]["preparations"]
    assert [item["state"] for item in shown] == ["ready", "ready"]
    assert shown[1]["train_tokens"] > shown[0]["train_tokens"], "bytes are more tokens than BPE"


@pytest.mark.parametrize(
    ("change", "field"),
    [({"dataset": "nonsense"}, "data.dataset"), ({"version": 2}, "data.version")],
)
def test_data_that_does_not_exist_is_named(desk: Desk, change: Json, field: str) -> None:
    dataset = desk.make(ready=False, **{"letters.jsonl": letters()})
    asked = DataSpec.model_validate({"dataset": dataset["id"]} | change)
    with pytest.raises(Invalid) as refused, desk.site.app.state.database.write() as session:
        resolve_data(session, desk.team_id, asked)
    assert [problem.field for problem in refused.value.errors] == [field]


def test_a_killed_worker_costs_its_slice_only(desk: Desk, sent: list[list[str]], small_pieces: None) -> None:
    unprepared(desk)
    site, preparation = desk.site, only(desk.site)
    assert step_once(site, preparation) and step_once(site, preparation)  # planned, and one slice
    dead = take(site, preparation)
    assert isinstance(dead, work_preparations.Tokenize)
    while step_once(site, preparation):
        pass
    assert only(site).shards_done == 9
    sent.clear()
    assert resend(site) == 0, "its lease still stands"
    lapse(site)
    assert resend(site) == 1 and sent == [["prepare", str(preparation.id)]]
    assert resend(site) == 0, "sent once in a while, not at every sweep"
    while step_once(site, preparation):
        pass
    assert only(site).state == PreparationState.READY
    # The dead one was only frozen: what it brings now changes nothing.
    work.do_step(site.app.state.database, site.app.state.store, dead)
    assert only(site).shards_done == 10


def test_lost_messages_are_sent_again(desk: Desk, sent: list[list[str]]) -> None:
    """Of each kind, when it is its turn: nobody works on what waits for something else."""
    desk.make(ready=False, **{"letters.jsonl": letters()})
    database: Database = desk.site.app.state.database
    order = []
    while True:
        sent.clear()
        with database.write() as session:
            for table in (Reading, DatasetVersion, Preparation):
                session.execute(update(table).values(touched=now() - messages.SILENCE * 2))
        if not resend(desk.site):
            break
        ((kind, row_id),) = sent
        order.append(kind)
        assert make_step(database, desk.site.app.state.store, Work(kind), UUID(row_id))
    assert order == ["read", "survey", *["prepare"] * 3]
    assert only(desk.site).state == PreparationState.READY


def test_a_slice_that_kills_its_workers_ends_the_preparation_until_somebody_asks_again(
    desk: Desk, sent: list[list[str]]
) -> None:
    dataset = unprepared(desk)
    site, preparation = desk.site, only(desk.site)
    step_once(site, preparation)
    for _ in range(leases.MOST_LOST_LEASES):
        assert isinstance(take(site, preparation), work_preparations.Tokenize)
        lapse(site)
    assert not step_once(site, preparation)
    assert only(site).state == PreparationState.FAILED
    assert "3 workers in a row died over documents 0 to 199" in str(only(site).error)
    assert desk.post(f"datasets/{dataset['id']}/preparations").status_code == 202
    assert only(site).state == PreparationState.WORKING
    site.prepare()
    assert only(site).state == PreparationState.READY


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_an_error_of_the_worker_is_tried_three_times(
    desk: Desk, sent: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = unprepared(desk)
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "do_step", full)
        states = []
        for _ in range(leases.MOST_FAILURES):
            assert step_once(desk.site, only(desk.site))
            states.append(only(desk.site).state)
    assert states == ["waiting", "waiting", "failed"]
    assert "No space left on device" in str(only(desk.site).error)
    desk.post(f"datasets/{dataset['id']}/preparations")
    desk.site.prepare()
    assert only(desk.site).state == PreparationState.READY


@pytest.mark.parametrize(("kind", "verb"), [(Work.READ, "Reading"), (Work.SURVEY, "Applying the recipe")])
def test_a_version_that_a_worker_s_errors_ended_can_be_made_again(
    desk: Desk, kind: Work, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = desk.make(ready=False, **{"a.jsonl": letters()})
    database, store = desk.site.app.state.database, desk.site.app.state.store
    with database.read() as session:
        rows = {
            Work.READ: session.scalars(select(Reading.id)).one(),
            Work.SURVEY: session.scalars(select(DatasetVersion.id)).one(),
        }
    if kind is Work.SURVEY:
        assert make_step(database, store, Work.READ, rows[Work.READ])
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "do_step", full)
        for _ in range(leases.MOST_FAILURES):
            assert make_step(database, store, kind, rows[kind])
    (version,) = desk.ready(made)["versions"]
    assert version["state"] == "failed" and f"{verb} failed 3 times" in version["error"]
    assert "make the version again" in version["error"]
    again = desk.add(made)
    assert [one["state"] for one in again["versions"]] == ["ready", "failed"]


def test_errors_between_steps_that_succeed_never_add_up(
    desk: Desk, sent: list[list[str]], small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    unprepared(desk)
    while only(desk.site).state != PreparationState.READY:
        with monkeypatch.context() as patch:
            patch.setattr(tasks, "do_step", full)
            assert step_once(desk.site, only(desk.site))
        assert step_once(desk.site, only(desk.site))
    assert (only(desk.site).shards_total or 0) > leases.MOST_FAILURES


def test_a_database_that_is_busy_is_no_failure_of_the_data(
    desk: Desk, sent: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise Busy("database_busy", "Not now.")

    unprepared(desk)
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "do_step", busy)
        for _ in range(leases.MOST_FAILURES + 1):
            assert step_once(desk.site, only(desk.site)), "the step was put back at once"
    assert only(desk.site).failures == 0
    desk.site.prepare()
    assert only(desk.site).state == PreparationState.READY


def test_a_worker_that_lost_its_lease_fails_nothing(
    desk: Desk, sent: list[list[str]], small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unusable(*_: object) -> None:
        raise UnusableDataError("a slow worker's opinion")

    unprepared(desk)
    site, preparation = desk.site, only(desk.site)
    database: Database = site.app.state.database
    step_once(site, preparation)
    slow = take(site, preparation)
    assert slow is not None
    lapse(site)
    site.prepare()
    with database.write() as session:
        session.execute(update(Preparation).values(state=PreparationState.WORKING))
    with monkeypatch.context() as patch:
        patch.setattr(work, "tokenize", unusable)
        work.do_step(database, site.app.state.store, slow)
    steps.note_failure(database, slow, OSError("late"))
    assert (only(site).state, only(site).failures) == (PreparationState.WORKING, 0)


def test_a_preparation_that_was_deleted_under_its_worker_leaves_no_bytes(
    desk: Desk, sent: list[list[str]]
) -> None:
    dataset = unprepared(desk)
    site, preparation = desk.site, only(desk.site)
    step_once(site, preparation)
    step = take(site, preparation)
    assert isinstance(step, work_preparations.Tokenize)
    store: LocalStore = site.app.state.store
    sources = {key: store.read(key) for key in (step.piece.piece_key, step.piece.mask_key)}
    assert desk.delete(f"datasets/{dataset['id']}").status_code == 204
    for key, content in sources.items():  # as if they were still being read
        store.write(key, content)
    store.write(f"{step.folder}/tokenizer.json", tokenizer_bytes(byte_tokenizer()))
    work.do_step(site.app.state.database, store, step)
    assert not store.path_of(step.folder).exists()


def test_many_workers_at_once_do_each_slice_once(desk: Desk, small_pieces: None) -> None:
    unprepared(desk)
    site, preparation = desk.site, only(desk.site)
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
    assert found.state == PreparationState.READY and found.shards_total == found.shards_done == 10
    assert len(made) == 10 + 1


def test_a_lease_is_renewed_while_its_step_runs(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.01)
    unprepared(desk)
    site = desk.site
    step = take(site, only(site))
    assert step is not None
    lapse(site)
    with leases.kept(site.app.state.database, step.lease):
        while (until := only(site).leased_until) is None or until < now():
            pass


def test_cancelling_ends_the_step_in_hand_and_a_later_request_goes_on(
    desk: Desk, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.01)
    dataset = unprepared(desk)
    site, preparation = desk.site, only(desk.site)
    for _ in range(4):  # the plan and three slices
        assert step_once(site, preparation)
    path = f"datasets/{dataset['id']}/preparations"
    shown = dataset["versions"][0]["preparations"][0]
    step = take(site, preparation)
    assert step is not None
    with leases.kept(site.app.state.database, step.lease) as is_unwanted:
        cancelled = desk.post(f"{path}/{shown['id']}/cancel").json()
        assert (cancelled["state"], cancelled["shards_done"]) == ("cancelled", 3)
        while not is_unwanted():
            pass
    work.do_step(site.app.state.database, site.app.state.store, step)  # leaves at once, or is done: no harm
    assert not step_once(site, preparation)
    assert desk.post(f"{path}/{shown['id']}/cancel").json()["state"] == "cancelled"
    assert resend(site) == 0
    again = desk.post(path)
    assert (again.status_code, again.json()["id"], again.json()["state"]) == (202, shown["id"], "working")
    assert again.json()["shards_done"] >= 3, "slices that are done stay done"
    site.prepare()
    assert only(site).state == PreparationState.READY
    done = desk.post(f"{path}/{shown['id']}/cancel")
    assert (done.status_code, done.json()["code"]) == (409, "preparation_ended")


def test_a_step_that_is_cancelled_keeps_its_lease_until_it_has_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.01)
    dataset = unprepared(desk)
    site = desk.site
    step = take(site, only(site))
    assert step is not None
    path = f"datasets/{dataset['id']}/preparations/{dataset['versions'][0]['preparations'][0]['id']}/cancel"
    with leases.kept(site.app.state.database, step.lease) as is_unwanted:
        assert desk.post(path).json()["state"] == "cancelled"
        while not is_unwanted():
            pass
        lapse(site)
        while (until := only(site).leased_until) is None or until < now():
            pass


def test_cancelling_interrupts_the_sample_of_a_tokenizer(desk: Desk) -> None:
    unprepared(desk)
    site, asked = desk.site, list[None]()
    step = take(site, only(site))
    assert isinstance(step, work_preparations.Plan)

    def is_unwanted() -> bool:
        asked.append(None)
        return len(asked) == 4

    with pytest.raises(steps.Unwanted):
        work_preparations.plan(site.app.state.database, site.app.state.store, step, is_unwanted)
    assert len(asked) == 4 and not [key for key in desk.stored() if key.startswith(step.folder)]


def test_cancelling_interrupts_the_completion(desk: Desk) -> None:
    """Before a shard is cut for a validation split, before each is stored, and before the manifest."""
    unprepared(desk, documents=2)
    site, asked = desk.site, list[None]()
    database, store = site.app.state.database, site.app.state.store
    while not isinstance(step := take(site, only(site)), work_preparations.Complete):
        assert step is not None
        work.do_step(database, store, step)
    before = desk.stored()
    for moment in range(1, 5):
        asked.clear()
        with pytest.raises((steps.Unwanted, Cancelled)):
            complete(database, store, step, lambda: bool(asked.append(None)) or len(asked) == moment)  # noqa: B023
        assert len(desk.stored()) - len(before) == max(0, moment - 2), "what was stored until then"
    assert complete(database, store, step, lambda: False) is None
    assert only(site).state == PreparationState.READY and only(site).validation_from_tail


def test_a_preparation_that_runs_wait_for_is_not_cancelled(desk: Desk) -> None:
    dataset = desk.make(ready=False, **{"letters.jsonl": letters()})
    spec = {"name": "waiting run", "data": {"dataset": dataset["id"]}, "resources": {"device": "cpu"}}
    run = desk.post("runs", spec).json()
    path = f"datasets/{dataset['id']}/preparations/{dataset['versions'][0]['preparations'][0]['id']}/cancel"
    answer = desk.post(path)
    assert (answer.status_code, answer.json()["runs"]) == (409, ["waiting run"])
    assert desk.post(f"runs/{run['id']}/cancel").status_code == 202
    assert desk.post(path).json()["state"] == "cancelled"
    answer = desk.post("runs", spec)
    assert answer.status_code == 201
    assert only(desk.site).state == PreparationState.WAITING, "a submission begins it anew"


def test_a_foreign_preparation_is_unknown(desk: Desk) -> None:
    one, two = (desk.make(name, ready=False, **{"a.jsonl": letters()}) for name in ("one", "two"))
    foreign = two["versions"][0]["preparations"][0]["id"]
    assert desk.post(f"datasets/{one['id']}/preparations/{foreign}/cancel").status_code == 404


@pytest.mark.parametrize(
    "files", [{"a.jsonl": lines("the only document of all")}, {"a.txt": b"prose " * 500}]
)
def test_a_split_without_a_document_is_the_last_hundredth_of_the_tokens(
    desk: Desk, files: dict[str, bytes]
) -> None:
    made = desk.make("one", ready=False, **files)
    asked = {"tokenizer": {"kind": "bytes"}, "validation_fraction": 0.01}
    desk.post(f"datasets/{made['id']}/preparations", asked)
    shown = desk.ready(made)["versions"][0]["preparations"][1]
    tokens = len(next(iter(files.values()))) + 1 if "a.txt" in files else len("the only document of all") + 1
    assert shown["state"] == "ready" and shown["validation_from_tail"]
    assert shown["train_tokens"] + shown["validation_tokens"] == tokens
    assert shown["validation_tokens"] == max(1, tokens // 100)


def test_a_celery_worker_prepares_what_was_sent(desk: Desk, settings: Settings, valkey_url: str) -> None:
    """The real messages, through a real broker, handled by a worker's own code in this process."""
    with_broker = settings.model_copy(update={"tasks_url": valkey_url})
    database = Database(settings.resolved_database_url, {"enqueuer": Enqueuer(with_broker)})
    desk.make(ready=False, **{"letters.jsonl": letters()})
    with database.write() as session:
        messages.send_step(session, Work.READ, session.scalars(select(Reading.id)).one())
    app = celery_app(valkey_url, TASKS_KEY_PREFIX)
    tasks.register_tasks(app, database, desk.site.app.state.store)
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue(TASKS_QUEUE)
        while only(desk.site).state in ("waiting", "working"):
            message = queue.get(timeout=10)
            app.tasks[message.headers["task"]](*message.payload[0])
            message.ack()
        queue.close()
    assert only(desk.site).state == PreparationState.READY
    database.dispose()
