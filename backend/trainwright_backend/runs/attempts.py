"""How attempts were cut over their ranks: by what their claims were granted, whatever the run's spec says by now.

A run's spec has the layout of its next attempt. What an attempt does is told by the JobSpec of its claim.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import select

from trainwright.contracts.api.verbs import RunLayout
from trainwright.contracts.job_spec import JobKind
from trainwright_backend.core.db import Read
from trainwright_backend.runs.tables import Placement, Run


def layout_of(spec: dict[str, Any]) -> RunLayout:
    """The layout in a stored spec."""
    return _layout(spec.get("parallelism"), spec["batch"]["micro_sequences"])


def newest_layouts(session: Read, run_ids: Sequence[UUID]) -> dict[UUID, RunLayout]:
    """Of each run the layout of its newest attempt, where that trains and this version can read it."""
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
        with suppress(ValidationError):  # of a version with other rules
            found[run_id] = _layout(parallelism, size)
    return found


def _layout(parallelism: dict[str, Any] | None, micro_sequences: int) -> RunLayout:
    return RunLayout.model_validate({"parallelism": parallelism or {}, "micro_sequences": micro_sequences})
