"""The work behind a preparation: plan it, tokenise its slices, complete it. Each a step that one worker does.

`next_step` takes a lease in a short transaction; the step runs without one; its outcome is written guarded by the
lease, so that a worker which was thought dead and is not changes nothing. Repeating a step gives the same bytes, so a
killed worker costs its step and no more. While a step runs, a thread renews its lease.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, or_, select, update

from trainwright.contracts.api import PreparationState
from trainwright.contracts.run_spec import TokenizerSpec
from trainwright.contracts.shards import MANIFEST_NAME, TOKENIZER_NAME, ShardManifest
from trainwright.prepare.documents import Rejected, Slice, Source, UnusableDataError, plan_slices
from trainwright.prepare.shards import SliceResult, build_manifest, rejected_lines, tokenize_slice
from trainwright.prepare.tokenizer import load_tokenizer, tokenizer_bytes, train_tokenizer
from trainwright_backend.core.db import Database, Read, Write, now
from trainwright_backend.core.errors import AppError, Busy
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.preparations import object_folder, send_messages
from trainwright_backend.datasets.tables import DatasetFile, Preparation, PreparationSlice, RejectedLine

LEASE = timedelta(seconds=60)
RENEWAL_SECONDS = 15.0
MOST_LOST_LEASES = 3
"""A slice whose workers died so often would kill the next one too."""

MOST_FAILURES = 3
"""Errors, such as a full disk, before a preparation is given up."""

REJECTED_LISTED = 1_000

UNFINISHED = (PreparationState.WAITING, PreparationState.WORKING)


@dataclass(frozen=True)
class Step:
    """What a worker has taken on, with all it needs to do it without the database."""

    preparation_id: UUID
    lease: UUID
    folder: str
    """Of the preparation's objects."""

    files: list[tuple[str, str]]
    """Name and object key of each file of the version."""

    tokenizer: TokenizerSpec
    validation_fraction: float


@dataclass(frozen=True)
class Plan(Step):
    """Train the tokenizer and cut the files into slices."""


@dataclass(frozen=True)
class Tokenize(Step):
    """Turn one slice into shards."""

    part: Slice


@dataclass(frozen=True)
class Complete(Step):
    """Write the manifest."""


def next_step(session: Write, preparation_id: UUID) -> Step | None:
    """Take the lease of the next step that nobody works on."""
    preparation = session.get(Preparation, preparation_id)
    if preparation is None or preparation.state not in UNFINISHED:
        return None
    if preparation.shards_total is None:
        return _take(session, preparation, Plan)
    slice_step = _take_slice(session, preparation)
    if slice_step is not None:
        return slice_step
    if preparation.shards_done == preparation.shards_total and preparation.state == PreparationState.WORKING:
        return _take(session, preparation, Complete)
    return None


def do_step(database: Database, store: LocalStore, step: Step) -> None:
    """Do what `next_step` took on, and write the outcome down."""
    with _kept(database, step):
        try:
            match step:
                case Plan():
                    _plan(database, store, step)
                case Tokenize():
                    _tokenize(database, store, step)
                case Complete():
                    _complete(database, store, step)
        except UnusableDataError as error:
            _fail(database, step, str(error))
    _sweep_if_deleted(database, store, step)


def note_failure(database: Database, step: Step, error: Exception) -> None:
    """A step ended with an error that may go away: it is tried again a little later, a few times."""
    with database.write() as session:
        held = _release(session, step)
        preparation = session.get(Preparation, step.preparation_id, with_for_update=True)
        if not held or preparation is None or preparation.state not in UNFINISHED:
            return
        preparation.failures += 1
        preparation.touched = now()
        if preparation.failures >= MOST_FAILURES:
            preparation.state = PreparationState.FAILED
            preparation.may_be_repeated = True
            preparation.error = (
                f"Preparing failed {MOST_FAILURES} times, at last with: {str(error)[:500] or type(error).__name__}. "
                "Once that is cured, submit a run again to go on."
            )


def put_back(database: Database, step: Step) -> None:
    """Nothing is wrong with the step: it is made when the platform can serve it again."""
    with suppress(AppError), database.write() as session:
        _release(session, step)


def _plan(database: Database, store: LocalStore, step: Plan) -> None:
    sources = _sources(store, step)
    slices = plan_slices(sources)
    content = tokenizer_bytes(train_tokenizer(sources, slices, step.tokenizer, step.validation_fraction))
    store.write(f"{step.folder}/{TOKENIZER_NAME}", content)
    with database.write() as session:
        planned = session.change(
            update(Preparation)
            .where(Preparation.id == step.preparation_id, Preparation.lease == step.lease)
            .values(
                state=PreparationState.WORKING,
                shards_total=len(slices),
                tokenizer_bytes=len(content),
                failures=0,
                lease=None,
                leased_until=None,
                touched=now(),
            )
        )
        if not planned:
            return
        session.add_all(
            PreparationSlice(
                preparation_id=step.preparation_id, number=part.index, plan=part.model_dump(mode="json")
            )
            for part in slices
        )
        send_messages(session, step.preparation_id, max(1, len(slices)))


def _tokenize(database: Database, store: LocalStore, step: Tokenize) -> None:
    source = next(source for source in _sources(store, step) if source.name == step.part.file)
    tokenizer = load_tokenizer(store.path_of(f"{step.folder}/{TOKENIZER_NAME}"))
    with store.working_folder() as folder:
        result = tokenize_slice(
            source, step.part, tokenizer, step.tokenizer, step.validation_fraction, folder
        )
        for shard in (result.train, result.validation):
            if shard.tokens:
                stored = store.put_file(f"{step.folder}/{shard.name}", folder / shard.name)
                if stored.digest != shard.digest:
                    raise OSError(f"{shard.name} was not read back as it was written")
    with database.write() as session:
        done = session.change(
            update(PreparationSlice)
            .where(*_is_slice(step), PreparationSlice.done.is_(False))
            .values(done=True, result=result.model_dump(mode="json"), lease=None, leased_until=None)
        )
        if done:
            session.change(
                update(Preparation)
                .where(Preparation.id == step.preparation_id)
                .values(shards_done=Preparation.shards_done + 1, failures=0, touched=now())
            )
            send_messages(session, step.preparation_id, 1)


def _complete(database: Database, store: LocalStore, step: Complete) -> None:
    with database.read() as session:
        results = _results(session, step.preparation_id)
    tokenizer = load_tokenizer(store.path_of(f"{step.folder}/{TOKENIZER_NAME}"))
    manifest = build_manifest(tokenizer, step.tokenizer, step.validation_fraction, results)
    content = manifest.model_dump_json(indent=1).encode()
    stored = store.write(f"{step.folder}/{MANIFEST_NAME}", content)
    rejected = sum(result.rejected_count for result in results)
    error = _why_not_usable(manifest, rejected, [name for name, _ in step.files])
    with database.write() as session:
        completed = session.change(
            update(Preparation)
            .where(Preparation.id == step.preparation_id, Preparation.lease == step.lease)
            .values(
                state=PreparationState.FAILED if error else PreparationState.READY,
                error=error,
                manifest=manifest.model_dump(mode="json"),
                manifest_digest=stored.digest,
                manifest_bytes=stored.bytes,
                documents=manifest.train.documents + manifest.validation.documents,
                rejected=rejected,
                lease=None,
                leased_until=None,
                touched=now(),
            )
        )
        if completed:
            _list_rejected(session, step.preparation_id, rejected_lines(results)[:REJECTED_LISTED])


def _why_not_usable(manifest: ShardManifest, rejected: int, files: Sequence[str]) -> str | None:
    if manifest.train.documents:
        return None
    if manifest.validation.documents:
        return (
            "All documents fell into the validation split, so nothing is left to train on. "
            "Upload more documents, or lower data.validation_fraction."
        )
    if rejected:
        rules = [
            "each line of a .jsonl file must be a JSON object with a string under 'text'",
            "a .txt file must be UTF-8",
        ]
        apply = [rule for rule, kind in zip(rules, (".jsonl", ".txt"), strict=True) if _any_is(files, kind)]
        return (
            f"No usable document was found: all {rejected} lines were refused. The list of refused lines says why; "
            f"{', and '.join(apply)}."
        )
    return "No usable document was found: the files hold nothing but white space. Upload files with text."


def _any_is(files: Sequence[str], kind: str) -> bool:
    return any(name.lower().endswith(kind) for name in files)


def _list_rejected(session: Write, preparation_id: UUID, lines: list[Rejected]) -> None:
    session.add_all(
        RejectedLine(
            preparation_id=preparation_id,
            position=position,
            file=item.file,
            line=item.line,
            reason=item.reason,
        )
        for position, item in enumerate(lines)
    )


def _results(session: Read, preparation_id: UUID) -> list[SliceResult]:
    """All slices' results in order; rejected lines only as long as they will be listed."""
    rows = session.scalars(
        select(PreparationSlice.result)
        .where(PreparationSlice.preparation_id == preparation_id)
        .order_by(PreparationSlice.number)
        .execution_options(yield_per=100)
    )
    results: list[SliceResult] = []
    listed = 0
    for row in rows:
        result = SliceResult.model_validate(row)
        kept = result.rejected[: REJECTED_LISTED - listed]
        listed += len(kept)
        results.append(result.model_copy(update={"rejected": kept}))
    return results


def _take(session: Write, preparation: Preparation, kind: type[Plan] | type[Complete]) -> Step | None:
    lease = uuid4()
    free = or_(Preparation.lease.is_(None), Preparation.leased_until < now())
    taken = session.change(
        update(Preparation)
        .where(Preparation.id == preparation.id, Preparation.state.in_(UNFINISHED), free)
        .values(lease=lease, leased_until=now() + LEASE, touched=now())
    )
    return kind(**_common(session, preparation, lease)) if taken else None


def _take_slice(session: Write, preparation: Preparation) -> Tokenize | None:
    free = or_(PreparationSlice.lease.is_(None), PreparationSlice.leased_until < now())
    row = session.scalar(
        select(PreparationSlice)
        .where(PreparationSlice.preparation_id == preparation.id, PreparationSlice.done.is_(False), free)
        .order_by(PreparationSlice.number)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    if row is None:
        return None
    part = Slice.model_validate(row.plan)
    if row.lease is not None:
        row.lost_leases += 1
        if row.lost_leases >= MOST_LOST_LEASES:
            _give_up(preparation, part)
            return None
    row.lease = uuid4()
    row.leased_until = now() + LEASE
    preparation.touched = now()
    session.flush()
    return Tokenize(**_common(session, preparation, row.lease), part=part)


def _give_up(preparation: Preparation, part: Slice) -> None:
    preparation.state = PreparationState.FAILED
    preparation.may_be_repeated = True
    preparation.error = (
        f"{MOST_LOST_LEASES} workers in a row died over {part.file} from byte {part.start} on. See whether the "
        "machine of the workers runs out of memory, then submit a run again to go on."
    )


def _common(session: Read, preparation: Preparation, lease: UUID) -> dict[str, Any]:
    files = session.execute(
        select(DatasetFile.name, DatasetFile.object_key)
        .where(DatasetFile.version_id == preparation.version_id)
        .order_by(DatasetFile.position)
    )
    return {
        "preparation_id": preparation.id,
        "lease": lease,
        "folder": object_folder(preparation.team_id, preparation.digest),
        "files": [(name, key) for name, key in files],
        "tokenizer": TokenizerSpec.model_validate(preparation.tokenizer),
        "validation_fraction": preparation.validation_fraction,
    }


def _sources(store: LocalStore, step: Step) -> list[Source]:
    return [Source(name, store.path_of(key)) for name, key in step.files]


def _is_slice(step: Tokenize) -> tuple[ColumnElement[bool], ...]:
    return (
        PreparationSlice.preparation_id == step.preparation_id,
        PreparationSlice.number == step.part.index,
        PreparationSlice.lease == step.lease,
    )


def _fail(database: Database, step: Step, error: str) -> None:
    with database.write() as session:
        if not _release(session, step):  # somebody else makes the step by now
            return
        session.change(
            update(Preparation)
            .where(Preparation.id == step.preparation_id, Preparation.state.in_(UNFINISHED))
            .values(state=PreparationState.FAILED, error=error[:2_000], lease=None, leased_until=None)
        )


def _release(session: Write, step: Step) -> bool:
    """Give the step's lease back; False when it was lost before."""
    return _set_lease(session, step, lease=None, leased_until=None) == 1


def _set_lease(session: Write, step: Step, **values: Any) -> int:
    if isinstance(step, Tokenize):
        return session.change(update(PreparationSlice).where(*_is_slice(step)).values(values))
    held = (Preparation.id == step.preparation_id, Preparation.lease == step.lease)
    return session.change(update(Preparation).where(*held).values(values))


@contextmanager
def _kept(database: Database, step: Step) -> Iterator[None]:
    """Renew the step's lease in a thread of its own while the block runs."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(RENEWAL_SECONDS):
            with suppress(Busy), database.write() as session:
                if not _set_lease(session, step, leased_until=now() + LEASE):
                    return
                session.change(
                    update(Preparation).where(Preparation.id == step.preparation_id).values(touched=now())
                )

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _sweep_if_deleted(database: Database, store: LocalStore, step: Step) -> None:
    """A dataset that was deleted meanwhile leaves nothing behind."""
    with database.read() as session:
        gone = session.scalar(select(Preparation.id).where(Preparation.id == step.preparation_id)) is None
    if gone:
        store.delete_prefix(step.folder)
