"""Validation losses of checkpoints: the last validation at or before a checkpoint's step.

Checkpoints store none: a validation may arrive after the checkpoint was committed, and older checkpoints have one too.
"""

from bisect import bisect_right
from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import select, tuple_

from trainwright.contracts.api.actions import RetentionResult
from trainwright.contracts.api.checkpoints import Checkpoint
from trainwright_backend.core.db import Read
from trainwright_backend.core.ids import parse_id
from trainwright_backend.metrics.curves import Curve, unpacked
from trainwright_backend.metrics.writing import CHUNK, QUERY_SERIES, SERIES

NAME = "validation_loss"


def with_validation(session: Read, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """The checkpoints of any runs, with the loss and the step of their validations.

    Validations of later attempts do not count: those attempts may have started from an earlier checkpoint.
    """
    runs = {checkpoint.run: parse_id("run", checkpoint.run) for checkpoint in checkpoints}
    series = _series(session, list(runs.values()))
    starts = _chunk_starts(session, [series_id for of_run in series.values() for _, series_id in of_run])
    wanted: dict[str, list[tuple[int, int]]] = {}
    for checkpoint in checkpoints:
        candidates = [
            (series_id, starts[series_id][index - 1])
            for attempt, series_id in series.get(runs[checkpoint.run], [])
            if attempt <= checkpoint.attempt
            and (index := bisect_right(starts.get(series_id, []), checkpoint.step)) > 0
        ]
        wanted[checkpoint.id] = candidates
    chunks = _chunks(session, {key for keys in wanted.values() for key in keys})
    return [
        _with_last(checkpoint, [chunks[key] for key in wanted[checkpoint.id]]) for checkpoint in checkpoints
    ]


def retained_with_validation(session: Read, result: RetentionResult) -> RetentionResult:
    """The same response, with the validations of its checkpoints."""
    shown = with_validation(session, [entry.checkpoint for entry in result.checkpoints])
    entries = [
        entry.model_copy(update={"checkpoint": checkpoint})
        for entry, checkpoint in zip(result.checkpoints, shown, strict=True)
    ]
    return result.model_copy(update={"checkpoints": entries})


def _with_last(checkpoint: Checkpoint, curves: Sequence[Curve]) -> Checkpoint:
    points = [
        (int(before.steps[-1]), float(before.values[-1]))
        for curve in curves
        if len(before := curve.between(-1, checkpoint.step))
    ]
    if not points:
        return checkpoint
    step, loss = max(points)
    return checkpoint.model_copy(update={"validation_loss": loss, "validation_step": step})


def _series(session: Read, run_ids: Sequence[UUID]) -> dict[UUID, list[tuple[int, int]]]:
    """Attempt and id of each run's series of validation losses."""
    found: dict[UUID, list[tuple[int, int]]] = {}
    for begin in range(0, len(run_ids), QUERY_SERIES):
        some = run_ids[begin : begin + QUERY_SERIES]
        rows = select(SERIES.run_id, SERIES.attempt, SERIES.id).where(
            SERIES.run_id.in_(some), SERIES.name == NAME
        )
        for run_id, attempt, series_id in session.execute(rows):
            found.setdefault(run_id, []).append((attempt, series_id))
    return found


def _chunk_starts(session: Read, series_ids: Sequence[int]) -> dict[int, list[int]]:
    """First steps of each series' chunks, in order. They are read from the index alone."""
    found: dict[int, list[int]] = {}
    for begin in range(0, len(series_ids), QUERY_SERIES):
        some = CHUNK.series_id.in_(series_ids[begin : begin + QUERY_SERIES])
        rows = (
            select(CHUNK.series_id, CHUNK.start_step).where(some).order_by(CHUNK.series_id, CHUNK.start_step)
        )
        for series_id, start_step in session.execute(rows):
            found.setdefault(series_id, []).append(start_step)
    return found


def _chunks(session: Read, keys: set[tuple[int, int]]) -> dict[tuple[int, int], Curve]:
    found: dict[tuple[int, int], Curve] = {}
    ordered = sorted(keys)
    key = tuple_(CHUNK.series_id, CHUNK.start_step)
    for begin in range(0, len(ordered), QUERY_SERIES):
        rows = select(CHUNK.series_id, CHUNK.start_step, CHUNK.n, CHUNK.steps, CHUNK["values"])
        for row in session.execute(rows.where(key.in_(ordered[begin : begin + QUERY_SERIES]))):
            found[row.series_id, row.start_step] = unpacked(row.start_step, row.n, row.steps, row.values)
    return found
