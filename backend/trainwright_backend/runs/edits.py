"""Editing a run's name, tags, notes and priority, which do not affect the training.

The name is also in the stored spec, and both are changed together.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import delete, select

from trainwright.contracts.api.actions import MAX_TAGS, RunEdit
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Invalid
from trainwright_backend.runs.queue import set_priority
from trainwright_backend.runs.service import locked_run
from trainwright_backend.runs.tables import Run, RunTag
from trainwright_backend.runs.transitions import add_event


def edit_run(session: Write, team_id: UUID, run_id: str, edit: RunEdit, by: str) -> Run:
    """Change the given fields. A new name is recorded as an event.

    Raises:
        NotFound: see `get_run`.
    """
    run = locked_run(session, team_id, run_id)
    if edit.name is not None and edit.name != run.name:
        message = f"renamed from {run.name} to {edit.name} by {by}"
        run.name, run.folded_name = edit.name, edit.name.casefold()
        run.spec = {**run.spec, "name": edit.name}
        session.flush()
        add_event(session, run, "renamed", message)
    if edit.priority is not None:
        set_priority(session, run, edit.priority, by)
    if edit.notes is not None:
        run.notes = edit.notes
    if edit.tags is not None:
        _set_tags(session, run, edit.tags)
    session.flush()
    return run


def tag_run(session: Write, team_id: UUID, run_id: str, tags: Sequence[str]) -> Run:
    """Add tags to a run.

    Raises:
        Invalid: it would have too many.
    """
    run = locked_run(session, team_id, run_id)
    all_tags = {*_tags_of(session, run), *tags}
    if len(all_tags) > MAX_TAGS:
        rule = f"A run has at most {MAX_TAGS} tags, and {run.name} would have {len(all_tags)}. Remove some first."
        raise Invalid.at("tags", rule, sorted(tags))
    _set_tags(session, run, all_tags)
    return run


def untag_run(session: Write, team_id: UUID, run_id: str, tags: Sequence[str]) -> Run:
    """Remove tags from a run; tags that it does not have are ignored."""
    run = locked_run(session, team_id, run_id)
    _set_tags(session, run, {*_tags_of(session, run)} - {*tags})
    return run


def _tags_of(session: Read, run: Run) -> Sequence[str]:
    return session.scalars(select(RunTag.tag).where(RunTag.run_id == run.id)).all()


def _set_tags(session: Write, run: Run, tags: Iterable[str]) -> None:
    session.change(delete(RunTag).where(RunTag.run_id == run.id))
    session.add_all(RunTag(run_id=run.id, tag=tag, team_id=run.team_id) for tag in sorted({*tags}))
    session.flush()
