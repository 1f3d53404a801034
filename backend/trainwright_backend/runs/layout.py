"""Changing the layout of a submitted run: how its next attempt is distributed over the same ranks.

The layout is written into the run's spec, from which every claim makes its JobSpec, so a live attempt is not affected.
What the run learns does not change: states are stored unsharded, and the order of the data is counted in global
sequences. A different number of ranks needs different slots, and so a new run.

If an attempt ends before its first step in a new layout, the run reverts to its previous one;
`attempts.layout_rollback` decides.
"""

from collections.abc import Iterator
from uuid import UUID

from pydantic import ValidationError

from trainwright.contracts.api.actions import RunLayout
from trainwright.contracts.base import problems
from trainwright.contracts.parallelism_spec import ParallelismSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import FINAL, RunState, Verdict
from trainwright_backend.core.db import Write
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.runs.joined_nodes import check_engine
from trainwright_backend.runs.service import locked_run
from trainwright_backend.runs.state_words import run_is_final
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Run
from trainwright_backend.runs.transitions import add_event

LAYOUT_EVENT = "layout"
ROLLBACK_EVENT = "layout_rolled_back"
"""Marks an attempt that its layout may have ended; the attempt is not counted."""
_AXES = ("pipeline", "data", "tensor")


def change_layout(session: Write, team_id: UUID, run_id: str, layout: RunLayout, by: str) -> Run:
    """Set the layout of the run's next attempt. Its current layout changes nothing.

    Raises:
        Conflict: the run has ended, or has trained all its steps.
        Invalid: the layout does not fit the rest of the run's spec, or no node has its engine.
    """
    run = locked_run(session, team_id, run_id)
    if run.state in FINAL:
        raise run_is_final(run)
    if run.verdict in (Verdict.FAIL, Verdict.CANCEL):
        raise Conflict("run_is_stopping", "This run is stopping for good: it has no next attempt.")
    if run.state is RunState.COMPLETING:
        detail = "This run has trained all its steps: there is no further attempt to use another layout."
        raise Conflict("run_is_completing", detail)
    before = stored_spec(run)
    after = with_layout(before, layout)
    change = "; ".join(_changes(before, after))
    if change:
        check_engine(session, after)
        run.spec = after.model_dump(mode="json")
        session.flush()
        add_event(session, run, LAYOUT_EVENT, f"layout changed by {by}: {change}; from the next attempt on")
    return run


def roll_back_layout(session: Write, run: Run, layout: RunLayout, cause: str) -> None:
    """Set the layout of the next attempt, because this one ended before its first step by ``cause``.

    Raises:
        Invalid: the rules of this version refuse ``layout``.
    """
    before = stored_spec(run)
    after = with_layout(before, layout)
    change = "; ".join(_changes(before, after))
    run.spec = after.model_dump(mode="json")
    session.flush()
    was = f"was rolled back: {change}" if change else "is not retried: another was chosen in the meantime"
    advice = f"Read the logs of attempt {run.attempt}, and change the layout again once the node can run it."
    words = (
        f"attempt {run.attempt} ended before its first step in a new layout ({cause}), which {was}. {advice}"
    )
    add_event(session, run, ROLLBACK_EVENT, words)


def require_all_nodes(session: Write, run: Run, cause: str) -> None:
    """Have the run wait for all its nodes, because this attempt, on fewer, ended before its first step by ``cause``."""
    run.spec = {**run.spec, "resources": {**run.spec["resources"], "min_nodes": None}}
    session.flush()
    words = (
        f"attempt {run.attempt} ended before its first step on {run.nodes} of {run.requested_nodes} nodes ({cause}). The next attempt "
        f"waits for {run.requested_nodes} nodes: resources.min_nodes is empty now. Read the logs of attempt {run.attempt}."
    )
    add_event(session, run, ROLLBACK_EVENT, words)


def with_layout(spec: RunSpec, layout: RunLayout) -> RunSpec:
    """``spec`` with ``layout``, validated.

    Raises:
        Invalid: it is refused, naming the field of the RunSpec.
    """
    changed = spec.model_dump(mode="json")
    changed["parallelism"] = layout.parallelism.model_dump(mode="json")
    if layout.micro_sequences is not None:
        changed["batch"]["micro_sequences"] = layout.micro_sequences
    try:
        return RunSpec.model_validate(changed)
    except ValidationError as error:
        raise Invalid(problems(error, RunSpec)) from error


def _changes(before: RunSpec, after: RunSpec) -> Iterator[str]:
    """The differences: all degrees in one, then each other field by name."""
    degrees = _degrees(before), _degrees(after)
    if degrees[0] != degrees[1]:
        yield " → ".join(degrees)
    for name in ParallelismSpec.model_fields:
        values = getattr(before.parallelism, name), getattr(after.parallelism, name)
        if name not in _AXES and values[0] != values[1]:
            yield f"{name} {_shown(values[0])} → {_shown(values[1])}"
    sizes = before.batch.micro_sequences, after.batch.micro_sequences
    if sizes[0] != sizes[1]:
        yield f"micro_sequences {sizes[0]} → {sizes[1]}"


def _degrees(spec: RunSpec) -> str:
    """The degrees of parallelism: `pipeline 2 × data 2`."""
    found = [f"{name} {size}" for name in _AXES if (size := getattr(spec.degrees, name)) > 1]
    return " × ".join(found) or "one rank"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "automatic" if value is None else str(value)
