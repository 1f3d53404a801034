"""Teams take turns at a data worker, long jobs yield to other teams, and no message is needed."""

import threading
from collections.abc import Iterator
from uuid import UUID

import pytest
from sqlalchemy import select

from tests.backend.conftest import Site
from tests.backend.datasets.dataset_editor import DatasetEditor, Json, letters
from tests.backend.datasets.row_jobs import run_next_job
from tests.live import eventually
from trainwright.prepare import chunks, rows
from trainwright_backend.control.loop import ControlLoop
from trainwright_backend.control.worker_watch import MAX_WAIT_SECONDS, WorkerWatch
from trainwright_backend.core.db import now
from trainwright_backend.datasets.job_queue import JobKind
from trainwright_backend.datasets.jobs import dispatch, round_robin, runner
from trainwright_backend.datasets.jobs.round_robin import RoundRobin
from trainwright_backend.datasets.jobs.runner import JobRunner, run_and_record_failure
from trainwright_backend.datasets.tables import DatasetVersion, FileChunk, ParsedFile


@pytest.fixture
def other(editor: DatasetEditor) -> DatasetEditor:
    """An editor of another team."""
    owner = editor.site.other_team("globex")
    return DatasetEditor(Site(editor.site.app, owner, "globex"))


@pytest.fixture
def job_runner(editor: DatasetEditor) -> JobRunner:
    return JobRunner(editor.site.app.state.database, editor.site.app.state.store)


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 20 documents, and slices that end after the first one."""
    monkeypatch.setattr(chunks, "CHUNK_DOCUMENTS", 20)
    monkeypatch.setattr(round_robin, "SLICE_SECONDS", 0.0)
    # Without the rule for compressed files, which depends on time.
    monkeypatch.setattr(round_robin.TimeSlice, "is_over", lambda self: self._others_wait())


def parsed(editor: DatasetEditor) -> list[tuple[str, int, bool]]:
    """The files of the editor's team: state, chunks, and whether a worker has a lease."""
    with editor.site.app.state.database.read() as session:
        files = session.scalars(select(ParsedFile).where(ParsedFile.team_id == editor.team_id)).all()
        chunks_of = [
            len(session.scalars(select(FileChunk).where(FileChunk.parsed_file_id == file.id)).all())
            for file in files
        ]
        return [
            (file.state, count, file.lease is not None) for file, count in zip(files, chunks_of, strict=True)
        ]


def state_of(editor: DatasetEditor, dataset: Json) -> str:
    version = editor.show(dataset)["versions"][0]
    return str(version["preparations"][0]["state"] if version["preparations"] else version["state"])


def test_teams_take_turns_however_much_one_has_queued(editor: DatasetEditor, other: DatasetEditor) -> None:
    for number in range(6):
        editor.make(f"many-{number}", ready=False, **{"a.jsonl": letters(3, first=10 * number)})
    dataset = other.make("one", ready=False, **{"a.jsonl": letters(3)})
    database, store = editor.site.app.state.database, editor.site.app.state.store
    worker, teams = RoundRobin(database), list[UUID]()
    while state_of(other, dataset) != "ready":
        taken = worker.take()
        assert taken is not None
        run_and_record_failure(database, store, taken.job)
        teams.append(taken.team_id)
    jobs = [team for team in teams if team == other.team_id]
    assert len(jobs) == 5, "parse, curate, plan, tokenize, complete"
    assert len(teams) <= 2 * len(jobs) and editor.team_id in teams


def test_files_of_a_team_take_turns_too(
    editor: DatasetEditor, job_runner: JobRunner, short_slices: None
) -> None:
    """The row that was idle for the longest time is next, so a small file does not wait for a large one to end."""
    large = editor.make("large", ready=False, **{"a.jsonl": letters(100)})
    small = editor.make("small", ready=False, **{"b.jsonl": letters(3, first=500)})
    finished = list[str]()
    while job_runner.run_one():
        finished += [
            name
            for name, dataset in (("small", small), ("large", large))
            if name not in finished and state_of(editor, dataset) == "ready"
        ]
    assert finished[0] == "small"


def test_a_long_file_yields_after_its_slice_only_if_another_team_waits(
    editor: DatasetEditor, other: DatasetEditor, job_runner: JobRunner, short_slices: None
) -> None:
    long = editor.make("long", ready=False, **{"a.jsonl": letters(300)})
    short = other.make("short", ready=False, **{"a.jsonl": letters(3, first=900)})
    assert job_runner.run_one()
    assert parsed(editor) == [("reading", 1, False)], "it stopped, and released its lease"
    while state_of(other, short) != "ready":
        assert job_runner.run_one()
    [(state, done, _)] = parsed(editor)
    assert state == "reading" and 2 <= done < 15
    assert job_runner.run_one() and parsed(editor) == [("ready", 15, False)], "now nobody waits"
    while job_runner.run_one():
        pass
    assert state_of(editor, long) == "ready"


@pytest.mark.slow(target="databases")
def test_reading_in_slices_gives_the_chunks_of_one_reading(
    editor: DatasetEditor, other: DatasetEditor, job_runner: JobRunner, short_slices: None
) -> None:
    content = letters(90) + b"broken\n"

    def digests(team: DatasetEditor) -> list[str]:
        with editor.site.app.state.database.read() as session:
            wanted = (
                select(FileChunk.digest)
                .join(ParsedFile, ParsedFile.id == FileChunk.parsed_file_id)
                .where(ParsedFile.team_id == team.team_id)
            )
            return list(session.scalars(wanted.order_by(FileChunk.number)))

    editor.make(ready=False, **{"a.jsonl": content})
    while job_runner.run_one():
        pass
    third = editor.site.other_team("initech")
    other.make(ready=False, **{"a.jsonl": content})
    DatasetEditor(Site(editor.site.app, third, "initech")).make(ready=False, **{"a.jsonl": letters(90, 900)})
    readings = 0
    while job_runner.run_one():
        readings += parsed(other)[0][0] == "reading"
    assert readings > 2 and digests(other) == digests(editor) != []


def test_a_curation_lets_other_teams_work_between_its_chunks(
    editor: DatasetEditor, other: DatasetEditor, job_runner: JobRunner, short_slices: None
) -> None:
    made = editor.make(ready=False, **{"a.jsonl": letters(100)})
    database, store = editor.site.app.state.database, editor.site.app.state.store
    with database.read() as session:
        parsed_file = session.scalars(select(ParsedFile.id)).one()
    assert run_next_job(database, store, JobKind.PARSE, parsed_file)
    other.make("waiting", ready=False, **{"a.jsonl": letters(3, first=500)})
    with database.write() as session:  # it is this team's turn
        version = session.scalars(select(DatasetVersion.id).where(DatasetVersion.state == "reading")).one()
        session.get_one(
            ParsedFile,
            session.scalars(select(ParsedFile.id).where(ParsedFile.team_id == other.team_id)).one(),
        ).last_activity = now()
        job = dispatch.next_job(session, JobKind.CURATE, version)
    assert job is not None
    taken = round_robin.TakenJob(job, JobKind.CURATE, version, editor.team_id)
    runner.run_and_record_failure(database, store, job, job_runner.give_way_of(taken))
    assert editor.show(made)["versions"][0]["state"] == "ready"
    assert [state for state, _, _ in parsed(other)] == ["ready"]


@pytest.fixture
def sweeping(job_runner: JobRunner, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Thread]:
    monkeypatch.setattr(runner, "SWEEP_SECONDS", 0.02)
    thread = threading.Thread(target=job_runner.sweep_until_stopped)
    thread.start()
    yield thread
    job_runner.stop()
    thread.join()


@pytest.mark.both_databases
def test_a_worker_finds_work_without_a_message(editor: DatasetEditor, sweeping: threading.Thread) -> None:
    """The tests' application has no broker."""
    made = editor.make(ready=False, **{"a.jsonl": letters(30)})
    eventually(lambda: state_of(editor, made) == "ready", "the data is prepared", 30)


def test_health_reports_that_no_worker_takes_jobs(editor: DatasetEditor, job_runner: JobRunner) -> None:
    """It does not matter whether the worker is dead, stopped or hung."""
    state = editor.site.app.state
    clock = [0.0]
    loop = state.control = ControlLoop(state.database, state.settings, state.store, lambda: 0.0)
    watch = loop.worker_watch = WorkerWatch(state.database, lambda: clock[0])

    def problems(seconds_later: float) -> list[str]:
        clock[0] += seconds_later
        watch.look()
        health = editor.site.anonymous().get("/api/v1/health").json()
        assert health["status"] == ("degraded" if health["problems"] else "ok")
        return [problem["part"] for problem in health["problems"]]

    assert problems(0) == []
    made = editor.make(ready=False, **{"a.jsonl": letters(3)})
    assert problems(1) == [] and problems(MAX_WAIT_SECONDS - 1) == []
    assert problems(1) == ["worker"]
    taken = RoundRobin(state.database).take()
    assert taken is not None and problems(1) == [], "a worker has a lease"
    run_and_record_failure(state.database, state.store, taken.job)
    while job_runner.run_one():
        pass
    assert state_of(editor, made) == "ready" and problems(2 * MAX_WAIT_SECONDS) == []


def test_short_jobs_between_two_checks_show_that_a_worker_is_running(
    editor: DatasetEditor, job_runner: JobRunner, short_slices: None
) -> None:
    """No check finds a lease."""
    clock = [0.0]
    watch = WorkerWatch(editor.site.app.state.database, lambda: clock[0])
    editor.make(ready=False, **{f"{name}.jsonl": letters(3) for name in "abcdefgh"})
    for _ in range(8):
        clock[0] += MAX_WAIT_SECONDS - 1
        watch.look()
        assert watch.problem() is None
        assert job_runner.run_one()
    watch.look()
    watch.look()
    clock[0] += MAX_WAIT_SECONDS
    assert watch.problem() is not None, "now nobody works"


def test_a_job_that_failed_waits_before_it_is_repeated(
    editor: DatasetEditor, job_runner: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dispatch, "parse_file", full)
    editor.make(ready=False, **{"a.jsonl": letters(3)})
    assert job_runner.run_one() and not job_runner.run_one()
    assert [state for state, _, _ in parsed(editor)] == ["reading"], "it has not failed permanently"


def test_white_space_ends_chunks_too(
    editor: DatasetEditor, other: DatasetEditor, job_runner: JobRunner, short_slices: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A file of blank lines, which compress 1000 to 1, can be read in slices."""
    monkeypatch.setattr("trainwright.prepare.json_rows.BLANK_LINES", 10)
    monkeypatch.setattr(chunks, "CHUNK_BLANK_ROWS", 2)
    assert rows.BLANK_LINES * 100 == 1_000_000
    editor.make(ready=False, **{"a.jsonl": b"\n" * 100 + letters(2)})
    other.make(ready=False, **{"a.jsonl": letters(2, first=500)})
    assert job_runner.run_one()
    with editor.site.app.state.database.read() as session:
        file = session.scalars(select(ParsedFile).where(ParsedFile.team_id == editor.team_id)).one()
        assert file.position is not None and file.position["lines"] == 20 and file.lease is None
