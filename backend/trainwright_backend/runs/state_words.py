"""The state of a run in the sentences of refusals, as people say it."""

from trainwright.contracts.run_state import RunState
from trainwright_backend.core.errors import Conflict
from trainwright_backend.runs.tables import Run

_IN_WORDS = {
    RunState.LEASED: "is starting",
    RunState.COMPLETING: "is finishing",
    RunState.RETRY_WAIT: "is recovering",
    RunState.SUCCEEDED: "has already succeeded",
    RunState.FAILED: "has already failed",
    RunState.CANCELLED: "has already been cancelled",
}


def state_in_words(state: RunState) -> str:
    """`is running`, `has already succeeded`: what follows `This run`."""
    return _IN_WORDS.get(state, f"is {state}")


def run_is_final(run: Run) -> Conflict:
    """The refusal of what only a run that has not ended can do."""
    return Conflict("run_is_final", f"This run {state_in_words(run.state)}.")
