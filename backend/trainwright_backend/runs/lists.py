"""Lists of runs: filtered, sorted, a page at a time, however many there are.

A page is found by an index that holds all that is filtered by (`tables.LISTED_BY`); only its own rows are read, by the
same statement: a hundred ids sent back to ask for them cost as much as all the rest of it. The
cursor is the place of the last run of the page before, not its number, so a page neither repeats nor skips a run that
stood still while others came, went or moved. Runs without the value that is sorted by come last, in both orders.
"""

import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, exists, or_, select

from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.runs import Run as ShownRun
from trainwright.contracts.api.runs import RunSort, SortOrder
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read, storable
from trainwright_backend.core.errors import Invalid, NotFound
from trainwright_backend.core.ids import LARGEST_NUMBER, parse_id, public_id
from trainwright_backend.runs.service import show_runs
from trainwright_backend.runs.tables import Run, RunSummary, RunTag

MOST_WORDS = 10

_COLUMN = {
    RunSort.CREATED: None,
    RunSort.NAME: Run.folded_name,
    RunSort.LOSS: Run.loss,
    RunSort.MFU: Run.mfu,
    RunSort.TOKENS_PER_SECOND: Run.tokens_per_second,
    RunSort.STEP: Run.last_step,
    RunSort.ENDED: Run.ended,
}
"""An id is sorted by the time of its run's creation."""


@dataclass(frozen=True)
class Asked:
    """Which runs, in which order."""

    states: tuple[RunState, ...] = ()
    words: str = ""
    created_by: UUID | str | None = None
    """An account, or a name."""

    tags: tuple[str, ...] = ()
    """All of them."""

    ids: tuple[str, ...] = ()
    """Some of them; empty: all."""

    sort: RunSort = RunSort.CREATED
    order: SortOrder = SortOrder.DESCENDING


@dataclass(frozen=True)
class _Place:
    """Behind a run."""

    value: str | float | datetime | None
    run_id: UUID


def list_runs(
    session: Read, team_id: UUID, asked: Asked, limit: int, cursor: str | None, scale: float
) -> Page[ShownRun]:
    """A page of the team's runs.

    Raises:
        Invalid: the cursor is none, or one of another order; too many words.
    """
    place = None if cursor is None else _place(cursor, asked)
    mine = and_(Run.team_id == team_id, *_filters(asked))
    found = _page(session, mine, asked, place, limit + 1)
    shown = found[:limit]
    items = show_runs(session, [(one.Run, one.RunSummary) for one in shown], scale)
    more = _cursor(shown[-1], asked) if len(found) > limit else None
    return Page[ShownRun](items=items, next_cursor=more)


def find_runs(session: Read, team_id: UUID, ids: Sequence[str]) -> list[Run]:
    """Those of these runs that the team has, each once, in the order in which they are named."""
    wanted = _known(ids)
    found = {
        one.id: one for one in session.scalars(select(Run).where(Run.team_id == team_id, Run.id.in_(wanted)))
    }
    return [found[run_id] for run_id in wanted if run_id in found]


def _known(ids: Sequence[str]) -> list[UUID]:
    """Without those that are no ids: of a list, what cannot be found is left out."""
    found: dict[UUID, None] = {}
    for text in ids:
        with suppress(NotFound):
            found[parse_id("run", text)] = None
    return list(found)


def _filters(asked: Asked) -> list[ColumnElement[bool]]:
    words = asked.words.casefold().split()
    if len(words) > MOST_WORDS:
        raise Invalid.at("q", f"A search has at most {MOST_WORDS} words. Leave some out.", asked.words[:200])
    found: list[ColumnElement[bool]] = [Run.folded_name.contains(word, autoescape=True) for word in words]
    if asked.states:
        found.append(Run.state.in_(asked.states))
    if asked.created_by is not None:
        column = Run.created_by if isinstance(asked.created_by, UUID) else Run.created_by_name
        found.append(column == asked.created_by)
    if asked.ids:
        found.append(Run.id.in_(_known(asked.ids)))
    for tag in asked.tags:
        tagged = exists().where(RunTag.run_id == Run.id, RunTag.tag == tag)
        found.append(tagged)
    return found


def _page(
    session: Read, mine: ColumnElement[bool], asked: Asked, place: _Place | None, limit: int
) -> list[Any]:
    """Runs, their summaries, and what they are sorted by."""
    column = _COLUMN[asked.sort]
    if column is None:
        behind = _beyond(Run.id, place.run_id, asked.order) if place else None
        return _rows(session, mine, behind, [Run.id], asked.order, limit)
    keys = [column, Run.id]
    found: list[Any] = []
    if place is None or place.value is not None:
        behind = _behind(column, place, asked.order) if place else column.is_not(None)
        found = _rows(session, mine, behind, keys, asked.order, limit)
        place = None
    if len(found) < limit:
        without = column.is_(None)
        behind = and_(without, _beyond(Run.id, place.run_id, asked.order)) if place else without
        found += _rows(session, mine, behind, keys, asked.order, limit - len(found))
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


def _behind(column: Any, place: _Place, order: SortOrder) -> ColumnElement[bool]:
    """Spelled so that the first comparison bounds the index."""
    ascending = order is SortOrder.ASCENDING
    from_here = column >= place.value if ascending else column <= place.value
    return and_(from_here, or_(_beyond(column, place.value, order), _beyond(Run.id, place.run_id, order)))


def _beyond(column: Any, value: Any, order: SortOrder) -> ColumnElement[bool]:
    beyond: ColumnElement[bool] = column > value if order is SortOrder.ASCENDING else column < value
    return beyond


def _cursor(last: Any, asked: Asked) -> str:
    value = getattr(last, "value", None)
    told = value.isoformat() if isinstance(value, datetime) else value
    said = json.dumps([asked.sort, asked.order, told, public_id("run", last.Run.id)])
    return base64.urlsafe_b64encode(said.encode()).decode().rstrip("=")


def _place(cursor: str, asked: Asked) -> _Place:
    try:
        sort, order, value, run = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        run_id = parse_id("run", run)
    except (ValueError, TypeError, AttributeError, RecursionError, NotFound):
        raise _wrong(cursor) from None
    if (sort, order) != (asked.sort, asked.order) or not _fits(value, asked.sort):
        raise _wrong(cursor)
    return _Place(_moment(value) if asked.sort is RunSort.ENDED else value, run_id)


def _fits(value: object, sort: RunSort) -> bool:
    if sort is RunSort.CREATED:
        return value is None
    if sort is RunSort.NAME:
        return isinstance(value, str) and value == storable(value)
    if sort is RunSort.STEP:
        return value is None or (type(value) is int and 0 <= value <= LARGEST_NUMBER)
    if sort is RunSort.ENDED:
        return value is None or _moment(value) is not None
    return value is None or (isinstance(value, float) and isfinite(value))


def _moment(value: object) -> datetime | None:
    """A time in UTC; None: it is none."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.utcoffset() == timedelta() else None


def _wrong(cursor: str) -> Invalid:
    rule = (
        "This is no cursor of this list: take `next_cursor` of the page before, with the same sort and order."
    )
    return Invalid.at("cursor", rule, cursor[:200])
