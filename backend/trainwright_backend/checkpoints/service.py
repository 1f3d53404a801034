"""Checkpoints: announced, uploaded by signed links, compared with their manifest, committed, pruned.

Nothing is visible before its commit, which requires that the stored manifest has the announced digest and lists
exactly the announced files, sizes and digests. The shards are not read here: they were verified by the store as
their bytes arrived, or by an agent that shares its disk. So each announcement has its own folder; one with
other content gets a new folder, which no byte of the old one and no late upload can reach. The store is queried
outside of transactions, so an upload takes two short ones around that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Select, case, delete, func, or_, select, tuple_
from sqlalchemy.orm import defer

from trainwright.contracts.agent_protocol import CheckpointCommit, UploadLink, UploadRequest
from trainwright.contracts.api.checkpoints import Checkpoint as ShownCheckpoint
from trainwright.contracts.api.checkpoints import CheckpointContents, CheckpointOrder
from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.checkpoint import MAX_STEP, CheckpointKind, CheckpointManifest, FileEntry
from trainwright.contracts.job_spec import EVENTS_NAME
from trainwright.contracts.run_state import WITHOUT_TRAINER
from trainwright.contracts.training_spec import CheckpointSpec
from trainwright_backend.checkpoints.manifests import checkpoint_contents
from trainwright_backend.checkpoints.retention import (
    MIN_KEPT,
    RetentionContext,
    Rule,
    forks_that_need,
    keep_reasons,
)
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.deletion_queue import LINK_SECONDS, queue_deletion
from trainwright_backend.core.errors import Conflict, Invalid, NotFound
from trainwright_backend.core.ids import new_id, parse_id, public_id, unknown
from trainwright_backend.core.object_store import ObjectStore, segments_of
from trainwright_backend.runs.attempt_files import stored_bytes
from trainwright_backend.runs.service import locked_run, run_folder
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Run


@dataclass(frozen=True)
class CheckpointQuery:
    """Filters and order of a list of checkpoints."""

    kind: CheckpointKind | None = None
    pinned: bool | None = None
    order: CheckpointOrder = CheckpointOrder.NEWEST


def announce(session: Write, store: ObjectStore, run: Run, request: UploadRequest) -> Checkpoint:
    """Record which files a checkpoint of the run's newest attempt will have.

    Raises:
        Invalid: a file name is invalid, or occurs twice.
        Conflict: ``already_committed``, with other files.
    """
    files = [file.model_dump(mode="json") for file in sorted(request.files, key=lambda file: file.name)]
    _check_names(request.files)
    found = _find(session, run, request.kind, request.step)
    if found is not None and found.files == files:
        return found
    if found is not None and found.committed is not None:
        detail = (
            f"Step {request.step} was committed with other files; a committed checkpoint does not change."
        )
        raise Conflict("already_committed", detail)
    if found is not None:
        remove(session, found)
    checkpoint_id = new_id()
    checkpoint = Checkpoint(
        id=checkpoint_id,
        run_id=run.id,
        attempt=run.attempt,
        fence=run.fence,
        kind=request.kind,
        step=request.step,
        prefix=_prefix(run, request.kind, request.step, checkpoint_id),
        files=files,
        bytes=sum(file.bytes for file in request.files),
        created=now(),
        valid=True,
    )
    session.add(checkpoint)
    session.flush()
    return checkpoint


def missing_links(store: ObjectStore, prefix: str, files: Sequence[FileEntry]) -> list[UploadLink]:
    """Upload links for those of ``files`` that the store lacks. It queries the store: call it outside
    transactions."""
    links = []
    for file in files:
        key = f"{prefix}/{file.name}"
        if store.stat(key) != file.bytes:
            url = store.sign("PUT", key, LINK_SECONDS, digest=file.digest, bytes=file.bytes)
            links.append(UploadLink(name=file.name, url=url, object_key=key))
    return links


def count_missing(store: ObjectStore, checkpoint: Checkpoint) -> int:
    """How many of the announced files the store lacks. It queries the store: call it outside transactions."""
    return sum(
        store.stat(f"{checkpoint.prefix}/{file['name']}") != file["bytes"] for file in checkpoint.files
    )


def announced(session: Read, run: Run, commit: CheckpointCommit) -> Checkpoint:
    """The announced checkpoint that ``commit`` refers to.

    Raises:
        Conflict: ``not_announced``: no upload was announced; ``events_behind``: the steps before it are not stored.
    """
    checkpoint = _find(session, run, commit.kind, commit.step)
    if checkpoint is None:
        raise Conflict(
            "not_announced", f"No files were announced for step {commit.step}: request upload links."
        )
    stored = stored_bytes(session, run.id, run.attempt).get(EVENTS_NAME, 0)
    if stored < commit.events_offset:
        detail = f"{EVENTS_NAME} is stored up to byte {stored}; this checkpoint needs {commit.events_offset}."
        raise Conflict("events_behind", detail, extensions={"offset": stored})
    return checkpoint


def commit(
    session: Write,
    run: Run,
    checkpoint_id: UUID,
    manifest_digest: str,
    manifest: CheckpointManifest | None,
    keep: CheckpointSpec,
) -> Checkpoint:
    """Make a verified checkpoint visible, and delete those that are older than the ones to keep.

    Args:
        manifest: the result of `verify_upload`; None for a checkpoint that was committed before.
    """
    checkpoint = session.get(Checkpoint, checkpoint_id, populate_existing=True)
    if checkpoint is None or checkpoint.fence != run.fence:
        raise Conflict(
            "not_announced", "The announcement was dropped in the meantime: request upload links again."
        )
    if checkpoint.committed is None:
        checkpoint.committed = now()
        checkpoint.manifest_digest = manifest_digest
        checkpoint.contents = None if manifest is None else checkpoint_contents(session, run, manifest)
        session.flush()
        _prune(session, run, keep.keep)
    return checkpoint


def newest_state(session: Read, run_id: UUID) -> Checkpoint | None:
    """The checkpoint to resume from: committed, valid, highest step."""
    states = _visible(run_id).where(Checkpoint.kind == CheckpointKind.STATE, Checkpoint.valid)
    return session.scalars(states.order_by(Checkpoint.step.desc(), Checkpoint.fence.desc()).limit(1)).first()


def last_checkpoint(session: Read, run: Run) -> Checkpoint | None:
    """The newest valid checkpoint, if it is of the run's last step."""
    newest = newest_state(session, run.id)
    steps = stored_spec(run).schedule.steps
    return newest if newest is not None and newest.step >= steps else None


def last_saving_attempt(session: Read, run_id: UUID) -> tuple[int, int]:
    """Numbers of the last attempts that committed a state, and one that is still valid; 0 for none."""
    saved = func.max(Checkpoint.attempt)
    still_good = func.max(case((Checkpoint.valid, Checkpoint.attempt)))
    states = select(saved, still_good).where(
        Checkpoint.run_id == run_id,
        Checkpoint.kind == CheckpointKind.STATE,
        Checkpoint.committed.is_not(None),
    )
    row = session.execute(states).one()
    return row[0] or 0, row[1] or 0


def has_export(session: Read, run: Run) -> bool:
    """Whether the newest attempt's export is committed."""
    exports = _visible(run.id).where(Checkpoint.kind == CheckpointKind.EXPORT, Checkpoint.fence == run.fence)
    return session.scalars(exports.limit(1)).first() is not None


def mark_invalid(session: Write, run_id: UUID, step: int | None) -> None:
    """Mark a checkpoint as damaged after a node's report: the one at ``step``, or else the newest."""
    states = _visible(run_id).where(Checkpoint.kind == CheckpointKind.STATE, Checkpoint.valid)
    ordered = states.order_by(Checkpoint.step.desc(), Checkpoint.fence.desc())
    at_step = session.scalars(ordered.where(Checkpoint.step == step).limit(1)).first()
    found = at_step or session.scalars(ordered.limit(1)).first()
    if found is not None:
        found.valid = False
        session.flush()


def list_checkpoints(session: Read, run: Run) -> list[ShownCheckpoint]:
    """The run's committed checkpoints and exports, newest first."""
    rows = session.scalars(_visible(run.id).order_by(Checkpoint.step.desc(), Checkpoint.committed.desc()))
    return [show_checkpoint(row, run) for row in rows]


def show_checkpoint(row: Checkpoint, run: Run) -> ShownCheckpoint:
    """A committed checkpoint of ``run`` as the API returns it."""
    return ShownCheckpoint(
        id=public_id("ckpt", row.id),
        run=public_id("run", run.id),
        run_name=run.name,
        kind=row.kind,
        step=row.step,
        attempt=row.attempt,
        bytes=row.bytes,
        created=row.committed or row.created,
        valid=row.valid,
        pinned=row.pinned,
        contents=None if row.contents is None else CheckpointContents.model_validate(row.contents),
    )


def get_checkpoint(session: Read, run: Run, checkpoint_id: str) -> Checkpoint:
    """A committed checkpoint of the run.

    Raises:
        NotFound: there is none with this id.
    """
    checkpoint = session.get(Checkpoint, parse_id("ckpt", checkpoint_id))
    if checkpoint is None or checkpoint.run_id != run.id or checkpoint.committed is None:
        raise unknown("ckpt", checkpoint_id)
    return checkpoint


def find_checkpoint(session: Read, team_id: UUID, checkpoint_id: str) -> Checkpoint:
    """A committed checkpoint of any run of the team.

    Raises:
        NotFound: there is none with this id.
    """
    mine = (Checkpoint.id == parse_id("ckpt", checkpoint_id), Run.team_id == team_id)
    found = select(Checkpoint).join(Run, Run.id == Checkpoint.run_id)
    checkpoint = session.scalars(found.where(*mine, Checkpoint.committed.is_not(None))).one_or_none()
    if checkpoint is None:
        raise unknown("ckpt", checkpoint_id)
    return checkpoint


def pin(session: Write, team_id: UUID, run_id: str, checkpoint_id: str, *, pinned: bool) -> ShownCheckpoint:
    """Pin a checkpoint, so that nothing deletes it, or unpin it.

    Raises:
        NotFound: there is none with this id, or it was deleted.
    """
    run = locked_run(session, team_id, run_id)
    checkpoint = get_checkpoint(session, run, checkpoint_id)
    checkpoint.pinned = pinned
    session.flush()
    return show_checkpoint(checkpoint, run)


def list_all(
    session: Read,
    team_id: UUID,
    query: CheckpointQuery,
    limit: int,
    cursor: str | None,
) -> Page[ShownCheckpoint]:
    """A page of the committed checkpoints of all the team's runs.

    Raises:
        Invalid: the cursor is malformed, or of another order.
    """
    by_run = query.order is CheckpointOrder.RUN
    keys = (Run.id, Checkpoint.step, Checkpoint.id) if by_run else (Checkpoint.id,)
    rows = (
        select(Checkpoint, Run)
        .join(Run, Run.id == Checkpoint.run_id)
        .where(Run.team_id == team_id, Checkpoint.committed.is_not(None))
        .order_by(*(key.desc() for key in keys))
        .limit(limit + 1)
        .options(defer(Checkpoint.files), defer(Run.spec))
    )
    if query.kind is not None:
        rows = rows.where(Checkpoint.kind == query.kind)
    if query.pinned is not None:
        rows = rows.where(Checkpoint.pinned.is_(query.pinned))
    if cursor is not None:
        rows = rows.where(tuple_(*keys) < _position(cursor, by_run=by_run))
    found = session.execute(rows).all()
    items = [show_checkpoint(row.Checkpoint, row.Run) for row in found[:limit]]
    more = _cursor(items[-1], by_run=by_run) if len(found) > limit else None
    return Page[ShownCheckpoint](items=items, next_cursor=more)


def _cursor(last: ShownCheckpoint, *, by_run: bool) -> str:
    return f"{last.run}.{last.step}.{last.id}" if by_run else last.id


def _position(cursor: str, *, by_run: bool) -> tuple[UUID | int, ...]:
    """The sort key of the checkpoint that a page starts after."""
    try:
        if not by_run:
            return (parse_id("ckpt", cursor),)
        run, step, checkpoint = cursor.split(".")
        if not (step.isascii() and step.isdecimal() and int(step) <= MAX_STEP):
            raise ValueError(step)
        return parse_id("run", run), int(step), parse_id("ckpt", checkpoint)
    except (NotFound, ValueError):
        rule = "This cursor is not valid here: use `next_cursor` of the previous page, with the same order."
        raise Invalid.at("cursor", rule, cursor[:200]) from None


def drop_uncommitted(session: Write) -> None:
    """Delete announcements that can no longer be committed because their attempt is over."""
    over = or_(Run.state.in_(WITHOUT_TRAINER), Checkpoint.fence < Run.fence)
    rows = (
        select(Checkpoint).join(Run, Run.id == Checkpoint.run_id).where(Checkpoint.committed.is_(None), over)
    )
    for checkpoint in session.scalars(rows).all():
        remove(session, checkpoint)


def _prune(session: Write, run: Run, keep: int) -> None:
    """Delete states older than the newest ``keep`` valid ones, unless there is another reason to keep them."""
    kept = max(keep, MIN_KEPT)
    states = session.scalars(
        _visible(run.id)
        .where(Checkpoint.kind == CheckpointKind.STATE)
        .order_by(Checkpoint.step.desc(), Checkpoint.fence.desc())
        .options(defer(Checkpoint.files))
        .with_for_update()
    ).all()
    valid = [state for state in states if state.valid]
    if len(valid) < kept:
        return
    about = RetentionContext(True, forks_that_need(session, _visible_ids(run.id)), now())
    why = keep_reasons(states, Rule(keep_last=kept), about)
    for state in states:
        if why[state.id] is None and state.step < valid[kept - 1].step:
            remove(session, state)


def remove(session: Write, checkpoint: Checkpoint) -> None:
    """Delete a checkpoint; its bytes follow."""
    queue_deletion(session, checkpoint.prefix, links_until=checkpoint.links_until)
    session.execute(delete(Checkpoint).where(Checkpoint.id == checkpoint.id))


def _visible_ids(run_id: UUID) -> Select[UUID]:
    return select(Checkpoint.id).where(Checkpoint.run_id == run_id, Checkpoint.committed.is_not(None))


def _visible(run_id: UUID) -> Select[Checkpoint]:
    return select(Checkpoint).where(Checkpoint.run_id == run_id, Checkpoint.committed.is_not(None))


def _find(session: Read, run: Run, kind: CheckpointKind, step: int) -> Checkpoint | None:
    return session.scalars(
        select(Checkpoint).where(
            Checkpoint.run_id == run.id,
            Checkpoint.fence == run.fence,
            Checkpoint.kind == kind,
            Checkpoint.step == step,
        )
    ).one_or_none()


def _prefix(run: Run, kind: CheckpointKind, step: int, checkpoint_id: UUID) -> str:
    folder = "export" if kind is CheckpointKind.EXPORT else f"step-{step}"
    return f"{run_folder(run)}/f{run.fence}/{checkpoint_id}/{folder}"


def _check_names(files: Sequence[FileEntry]) -> None:
    seen: set[str] = set()
    for file in files:
        try:
            segments_of(f"checkpoint/{file.name}")
        except ValueError:
            raise Invalid.at("files", "This is not a valid file name.", file.name[:120]) from None
        if file.name in seen or "/" in file.name:
            raise Invalid.at(
                "files", "Each name must be a file in one folder, and occur once.", file.name[:120]
            )
        seen.add(file.name)
