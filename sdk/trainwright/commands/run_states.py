"""The names of run states for people: those of the pages, where they differ from the names in the API."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from trainwright.contracts.run_state import RunState

_SHOWN = {
    RunState.LEASED: "starting",
    RunState.COMPLETING: "finishing",
    RunState.RETRY_WAIT: "recovering",
    RunState.SUCCEEDED: "done",
}


def shown_state(state: RunState) -> str:
    """What people read for a state."""
    return _SHOWN.get(state, state.value)


def _states_named(words: list[str] | None) -> list[str] | None:
    """The states that people mean. Names in the API are accepted too."""
    if words is None:
        return None
    named: dict[str, list[str]] = {state.value: [state.value] for state in RunState}
    for state in RunState:
        named.setdefault(shown_state(state), []).append(state.value)
    chosen: list[str] = []
    for word in words:
        if word.lower() not in named:
            raise typer.BadParameter(_no_such_state(word))
        chosen += named[word.lower()]
    return list(dict.fromkeys(chosen))


def _no_such_state(word: str) -> str:
    shown = list(dict.fromkeys(map(shown_state, RunState)))
    near = get_close_matches(word.lower(), shown, n=1)
    suggestion = f" Did you mean '{near[0]}'?" if near else ""
    return f"There is no state '{word}'.{suggestion} The states are {', '.join(shown)}."


States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        callback=_states_named,
        help=f"Only runs in this state; can be repeated. {', '.join(dict.fromkeys(map(shown_state, RunState)))}.",
    ),
]
