"""Groups of a team's runs: by tag, dataset, model or state, each with its number of runs and best loss.

A run with several tags is in the group of each.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, case, func, select

from trainwright.contracts.api.runs import RunGroup, RunGrouping
from trainwright.contracts.run_state import FINAL
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import NotFound
from trainwright_backend.core.ids import parse_id
from trainwright_backend.datasets.tables import Dataset
from trainwright_backend.runs.lists import RunQuery, matching
from trainwright_backend.runs.tables import Run, RunTag

MAX_GROUPS = 500

_NEWEST = func.max(Run.created)


def list_groups(session: Read, team_id: UUID, query: RunQuery, grouping: RunGrouping) -> list[RunGroup]:
    """The groups with runs that match, the one with the newest run first; at most `MAX_GROUPS`."""
    key, rows = _grouped(grouping)
    rows = rows.where(matching(team_id, query)).group_by(key).order_by(_NEWEST.desc()).limit(MAX_GROUPS)
    found = session.execute(rows).all()
    names: dict[str, str] = {}
    if grouping is RunGrouping.DATASET:
        names = dataset_names(session, team_id, {row.key for row in found})
    return [
        RunGroup(
            key=row.key or "",
            name=names.get(row.key, row.key or ""),
            runs=row.runs,
            live=row.live,
            best_loss=row.best_loss,
            newest=row.newest,
        )
        for row in found
    ]


def dataset_names(session: Read, team_id: UUID, ids: Iterable[str]) -> dict[str, str]:
    """Names of the team's datasets that still exist, by id."""
    known: dict[UUID, str] = {}
    for text in ids:
        with suppress(NotFound):
            known[parse_id("ds", text)] = text
    rows = select(Dataset.id, Dataset.name).where(Dataset.team_id == team_id, Dataset.id.in_(known))
    return {known[dataset_id]: name for dataset_id, name in session.execute(rows)}


def _grouped(grouping: RunGrouping) -> tuple[ColumnElement[Any], Select[Any]]:
    """The key of a group, and its columns."""
    keys: dict[RunGrouping, Any] = {
        RunGrouping.TAG: RunTag.tag,
        RunGrouping.DATASET: Run.dataset,
        RunGrouping.MODEL: Run.model,
        RunGrouping.STATE: Run.state,
    }
    key = keys[grouping]
    rows = select(
        key.label("key"),
        func.count().label("runs"),
        func.sum(case((Run.state.in_(FINAL), 0), else_=1)).label("live"),
        func.min(Run.loss).label("best_loss"),
        _NEWEST.label("newest"),
    ).select_from(Run)
    if grouping is RunGrouping.TAG:
        rows = rows.outerjoin(RunTag, RunTag.run_id == Run.id)
    return key, rows
