"""Layouts of attempts, from the JobSpecs that their claims were granted.

A run's spec has the layout of its next attempt, which may differ.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import select

from trainwright.contracts.api.actions import RunLayout
from trainwright.contracts.job_spec import JobKind
from trainwright_backend.core.db import Read
from trainwright_backend.runs.tables import Placement, Run


def layout_of(spec: dict[str, Any]) -> RunLayout:
    """The layout in a stored spec."""
    return _layout(spec.get("parallelism"), spec["batch"]["micro_sequences"])


def newest_layouts(session: Read, run_ids: Sequence[UUID]) -> dict[UUID, RunLayout]:
    """The layout of each run's newest attempt, if the attempt trains and this version can read it."""
    job = Placement.job
    granted = (
        select(
            Placement.run_id, job["spec"]["parallelism"], job["spec"]["batch"]["micro_sequences"].as_integer()
        )
        .join(Run, Run.id == Placement.run_id)
        .where(Run.id.in_(run_ids), Placement.fence == Run.fence, job["kind"].as_string() == JobKind.TRAIN)
    )
    found = {}
    for run_id, parallelism, size in session.execute(granted):
        with suppress(ValidationError):  # written by a version with other rules
            found[run_id] = _layout(parallelism, size)
    return found


def _layout(parallelism: dict[str, Any] | None, micro_sequences: int) -> RunLayout:
    return RunLayout.model_validate({"parallelism": parallelism or {}, "micro_sequences": micro_sequences})
