"""Lists of runs: filtered, sorted and paged, for any number of runs.

A page is found by an index that covers all filters (`tables.LISTED_BY`), and only the page's own rows are read,
in the same statement: a second query with a hundred ids costs as much as all the rest. The cursor is the sort
key of the previous page's last run, not an offset, so a page neither repeats nor skips a run while others are
added, removed or changed. Runs without the value sorted by come last, in both orders.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Exists, Select, and_, exists, func, or_, select

from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.runs import Run as ShownRun
from trainwright.contracts.api.runs import RunSort, SortOrder
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read, storable
from trainwright_backend.core.errors import Invalid, NotFound
from trainwright_backend.core.ids import MAX_NUMBER, parse_id, public_id
from trainwright_backend.runs.service import show_runs
from trainwright_backend.runs.tables import Run, RunSummary, RunTag

MAX_WORDS = 10

_COLUMN = {
    RunSort.CREATED: None,
    RunSort.NAME: Run.folded_name,
    RunSort.LOSS: Run.loss,
    RunSort.MFU: Run.mfu,
    RunSort.TOKENS_PER_SECOND: Run.tokens_per_second,
    RunSort.STEP: Run.last_step,
    RunSort.ENDED: Run.ended,
}
"""`created` needs no column: ids sort by creation time."""


@dataclass(frozen=True)
class RunQuery:
    """Filters and order of a list of runs."""

    states: tuple[RunState, ...] = ()
    words: str = ""
    created_by: UUID | str | None = None
    """An account, or a name."""

    tags: tuple[str, ...] = ()
    """A run must have all of them."""

    is_untagged: bool = False
    """Only runs without a tag."""

    dataset: str | None = None
    """Id of a dataset."""

    model: str | None = None
    """Size of a model, as `tables.model_size` writes it."""

    ids: tuple[str, ...] = ()
    """Only these runs; empty for all."""

    sort: RunSort = RunSort.CREATED
    order: SortOrder = SortOrder.DESCENDING


@dataclass(frozen=True)
class _Position:
    """The sort key of a run; the page starts after it."""

    value: str | float | datetime | None
    run_id: UUID


def list_runs(
    session: Read, team_id: UUID, query: RunQuery, limit: int, cursor: str | None, scale: float
) -> Page[ShownRun]:
    """A page of the team's runs.

    Raises:
        Invalid: the cursor is malformed or of another order; too many words.
    """
    position = None if cursor is None else _position(cursor, query)
    found = _page(session, matching(team_id, query), query, position, limit + 1)
    shown = found[:limit]
    items = show_runs(session, [(item.Run, item.RunSummary) for item in shown], scale)
    more = _cursor(shown[-1], query) if len(found) > limit else None
    return Page[ShownRun](items=items, next_cursor=more)


def each_page(
    session: Read, team_id: UUID, query: RunQuery, size: int
) -> Iterator[list[tuple[Run, RunSummary | None]]]:
    """All runs that match, in the list's order, in blocks of ``size``."""
    mine, position = matching(team_id, query), None
    while True:
        found = _page(session, mine, query, position, size)
        if found:
            yield [(item.Run, item.RunSummary) for item in found]
            position = _Position(getattr(found[-1], "value", None), found[-1].Run.id)
            session.expunge_all()
        if len(found) < size:
            return


def count_runs(session: Read, team_id: UUID, query: RunQuery) -> int:
    """How many runs match."""
    return session.scalar(select(func.count()).select_from(Run).where(matching(team_id, query))) or 0


def matching(team_id: UUID, query: RunQuery) -> ColumnElement[bool]:
    """The condition that a query's filters make.

    Raises:
        Invalid: too many words.
    """
    return and_(Run.team_id == team_id, *_filters(query))


def find_runs(session: Read, team_id: UUID, ids: Sequence[str]) -> list[Run]:
    """The team's runs among ``ids``, each once, in the given order."""
    wanted = _known(ids)
    found = {
        run.id: run for run in session.scalars(select(Run).where(Run.team_id == team_id, Run.id.in_(wanted)))
    }
    return [found[run_id] for run_id in wanted if run_id in found]


def _known(ids: Sequence[str]) -> list[UUID]:
    """The valid ids; in a list, unknown runs are left out."""
    found: dict[UUID, None] = {}
    for text in ids:
        with suppress(NotFound):
            found[parse_id("run", text)] = None
    return list(found)


def _filters(query: RunQuery) -> list[ColumnElement[bool]]:
    words = query.words.casefold().split()
    if len(words) > MAX_WORDS:
        raise Invalid.at("q", f"A search has at most {MAX_WORDS} words. Leave some out.", query.words[:200])
    found: list[ColumnElement[bool]] = [Run.folded_name.contains(word, autoescape=True) for word in words]
    if query.states:
        found.append(Run.state.in_(query.states))
    if query.created_by is not None:
        column = Run.created_by if isinstance(query.created_by, UUID) else Run.created_by_name
        found.append(column == query.created_by)
    if query.ids:
        found.append(Run.id.in_(_known(query.ids)))
    if query.dataset is not None:
        found.append(Run.dataset == storable(query.dataset))
    if query.model is not None:
        found.append(Run.model == storable(query.model))
    if query.is_untagged:
        found.append(~_has_tags())
    found += [_has_tags(RunTag.tag == tag) for tag in query.tags]
    return found


def _has_tags(*conditions: ColumnElement[bool]) -> Exists:
    """Whether a run has a tag that meets the conditions, also in a query that joins its tags itself."""
    return exists().where(RunTag.run_id == Run.id, *conditions).correlate(Run)


def _page(
    session: Read, mine: ColumnElement[bool], query: RunQuery, position: _Position | None, limit: int
) -> list[Any]:
    """Runs, their summaries and the values that they are sorted by."""
    column = _COLUMN[query.sort]
    if column is None:
        behind = _beyond(Run.id, position.run_id, query.order) if position else None
        return _rows(session, mine, behind, [Run.id], query.order, limit)
    keys = [column, Run.id]
    found: list[Any] = []
    if position is None or position.value is not None:
        behind = _behind(column, position, query.order) if position else column.is_not(None)
        found = _rows(session, mine, behind, keys, query.order, limit)
        position = None
    if len(found) < limit:
        without = column.is_(None)
        behind = and_(without, _beyond(Run.id, position.run_id, query.order)) if position else without
        found += _rows(session, mine, behind, keys, query.order, limit - len(found))
    return found


def _rows(
    session: Read,
    mine: ColumnElement[bool],
    behind: ColumnElement[bool] | None,
    keys: list[Any],
    order: SortOrder,
    limit: int,
) -> list[Any]:
    listed: Select[Any] = select(Run.id, *(key.label("value") for key in keys[:-1])).where(mine).limit(limit)
    if behind is not None:
        listed = listed.where(behind)
    page = listed.order_by(*_ordered(keys, order)).subquery()
    values = [page.c.value] if len(keys) > 1 else []
    rows = select(Run, RunSummary, *values).join(page, Run.id == page.c.id)
    rows = rows.outerjoin(RunSummary, RunSummary.run_id == Run.id)
    return list(session.execute(rows.order_by(*_ordered([*values, page.c.id], order))).all())


def _ordered(keys: list[Any], order: SortOrder) -> list[Any]:
    return [key.asc() if order is SortOrder.ASCENDING else key.desc() for key in keys]


def _behind(column: Any, position: _Position, order: SortOrder) -> ColumnElement[bool]:
    """Written so that the first comparison limits the index scan."""
    ascending = order is SortOrder.ASCENDING
    from_here = column >= position.value if ascending else column <= position.value
    return and_(
        from_here, or_(_beyond(column, position.value, order), _beyond(Run.id, position.run_id, order))
    )


def _beyond(column: Any, value: Any, order: SortOrder) -> ColumnElement[bool]:
    beyond: ColumnElement[bool] = column > value if order is SortOrder.ASCENDING else column < value
    return beyond


def _cursor(last: Any, query: RunQuery) -> str:
    value = getattr(last, "value", None)
    plain = value.isoformat() if isinstance(value, datetime) else value
    content = json.dumps([query.sort, query.order, plain, public_id("run", last.Run.id)])
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def _position(cursor: str, query: RunQuery) -> _Position:
    try:
        sort, order, value, run = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        run_id = parse_id("run", run)
    except (ValueError, TypeError, AttributeError, RecursionError, NotFound):
        raise _wrong(cursor) from None
    if (sort, order) != (query.sort, query.order) or not _fits(value, query.sort):
        raise _wrong(cursor)
    return _Position(_moment(value) if query.sort is RunSort.ENDED else value, run_id)


def _fits(value: object, sort: RunSort) -> bool:
    if sort is RunSort.CREATED:
        return value is None
    if sort is RunSort.NAME:
        return isinstance(value, str) and value == storable(value)
    if sort is RunSort.STEP:
        return value is None or (type(value) is int and 0 <= value <= MAX_NUMBER)
    if sort is RunSort.ENDED:
        return value is None or _moment(value) is not None
    return value is None or (isinstance(value, float) and isfinite(value))


def _moment(value: object) -> datetime | None:
    """``value`` as a time in UTC; None if it is not one."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.utcoffset() == timedelta() else None


def _wrong(cursor: str) -> Invalid:
    rule = (
        "This cursor is not valid here: use `next_cursor` of the previous page, with the same sort and order."
    )
    return Invalid.at("cursor", rule, cursor[:200])
