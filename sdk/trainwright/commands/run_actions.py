"""Commands that change runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated

import typer

from trainwright.client import TeamClient
from trainwright.commands.object_names import RunName, RunNames, find_run, find_runs
from trainwright.commands.program import continues_without_reader
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    DryRun,
    Key,
    Server,
    Sets,
    TeamSlug,
    describe_freed,
    open_team,
    parse_sets,
    print_error,
    print_json,
)
from trainwright.contracts.api.actions import MAX_RUNS_AT_ONCE, BulkResult, RunAction
from trainwright.transport.errors import ApiError

app = typer.Typer()


@app.command("cancel")
def cancel(
    runs: RunNames, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Cancel runs."""
    with open_team(server, key, team) as api:
        _act(api, RunAction.CANCEL, find_runs(api, runs), as_json)


@app.command("pause")
def pause(
    runs: RunNames, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Pause runs: they save their state and free their slots until they are resumed."""
    with open_team(server, key, team) as api:
        _act(api, RunAction.PAUSE, find_runs(api, runs), as_json)


@app.command("resume")
def resume(
    runs: RunNames, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Resume paused runs from their newest checkpoints."""
    with open_team(server, key, team) as api:
        _act(api, RunAction.RESUME, find_runs(api, runs), as_json)


@app.command("move")
def move(
    run: RunName,
    key: Key,
    team: TeamSlug,
    off: Annotated[str, typer.Option(help="Name of the node that the run leaves.")],
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Move a run off one of its nodes: it saves its state and is placed again without that node."""
    with open_team(server, key, team) as api:
        moved = api.move(find_run(api, run), off)
        if print_json(moved, as_json):
            return
        typer.echo(moved.sentence)


@app.command("edit")
def edit(
    run: RunName,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    name: Annotated[str | None, typer.Option(help="New name of the run.")] = None,
    notes: Annotated[str | None, typer.Option(help="New notes of the run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change a run's name or notes."""
    if name is None and notes is None:
        print_error("Give --name or --notes.")
        raise typer.Exit(2)
    with open_team(server, key, team) as api:
        edited = api.edit(find_run(api, run), name=name, notes=notes)
        if print_json(edited, as_json):
            return
        typer.echo(edited.name)


@app.command("tag")
def tag(
    runs: RunNames,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    add: Annotated[list[str] | None, typer.Option("--add", help="A tag to add; can be repeated.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="A tag to remove; can be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove tags from runs, then add others."""
    if not add and not remove:
        print_error("Give tags to --add or --remove.")
        raise typer.Exit(2)
    with open_team(server, key, team) as api:
        changed = [
            api.change_tags(some, remove=remove or (), add=add or ())
            for some in _batches(find_runs(api, runs))
        ]
        results = [result for some in changed for result in some]
        _print_results_or_fail(results, lambda _: "done", as_json)


@app.command("clone")
def clone(
    run: RunName,
    name: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Start a run NAME with the configuration of another one, from step 0; --set changes fields."""
    with open_team(server, key, team) as api:
        found = api.clone(find_run(api, run), name, parse_sets(sets))
        if print_json(found, as_json):
            return
        typer.echo(found.id)


@app.command("fork")
def fork(
    run: RunName,
    name: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Id of a checkpoint. Default: the newest one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start a run NAME that continues from a checkpoint of another one; --set changes fields."""
    with open_team(server, key, team) as api:
        found = api.fork(find_run(api, run), name, parse_sets(sets), checkpoint)
        if print_json(found, as_json):
            return
        typer.echo(found.id)


@app.command("delete")
def delete_runs(
    runs: RunNames,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete ended runs with their metrics and checkpoints."""
    with open_team(server, key, team) as api:
        if dry_run:
            _print_results_or_fail([_would_free(api, run) for run in find_runs(api, runs)], _freed, as_json)
            return
        _act(api, RunAction.DELETE, find_runs(api, runs), as_json)


def _act(api: TeamClient, action: RunAction, runs: list[str], as_json: bool) -> None:
    """Apply an action to runs in batches. Results are printed even if a later batch fails: line by line, or as one JSON array."""
    failed, collected = False, list[BulkResult]()
    try:
        for some in _batches(list(dict.fromkeys(runs))):
            results = api.act(action, some)
            done = [result.run for result in results if result.done]
            failed |= len(done) < len(results)
            if as_json:
                collected += results
            elif action is RunAction.DELETE or not done:
                _print_results(results, _freed, as_json)
            else:
                shown = {run.id: run.sentence for run in api.runs(ids=done)}
                _print_results(results, partial(_sentence, shown), as_json)
    finally:
        with continues_without_reader():
            print_json(collected, as_json)
    if failed:
        raise typer.Exit(1)


def _batches(runs: list[str]) -> Iterator[list[str]]:
    """``runs`` in batches of as many as the server accepts at once."""
    return (runs[first : first + MAX_RUNS_AT_ONCE] for first in range(0, len(runs), MAX_RUNS_AT_ONCE))


def _would_free(api: TeamClient, run: str) -> BulkResult:
    try:
        return BulkResult(run=run, done=True, freed=api.delete_run(run, dry_run=True))
    except ApiError as error:
        return BulkResult(run=run, done=False, code=error.code, detail=error.detail)


def _freed(result: BulkResult) -> str:
    return "deleted" if result.freed is None else describe_freed(result.freed)


def _sentence(shown: Mapping[str, str], result: BulkResult) -> str:
    return shown.get(result.run, "done")


def _print_results_or_fail(
    results: list[BulkResult], describe: Callable[[BulkResult], str], as_json: bool
) -> None:
    """Print a line for each run; the command fails if the action failed for one."""
    if _print_results(results, describe, as_json):
        raise typer.Exit(1)


def _print_results(results: list[BulkResult], describe: Callable[[BulkResult], str], as_json: bool) -> bool:
    """Print a line for each run, and return whether the action failed for one."""
    for result in () if print_json(results, as_json) else results:
        if result.done:
            with continues_without_reader():  # further batches follow
                typer.echo(f"{result.run}  {describe(result)}")
        else:
            print_error(f"{result.run}  {result.detail}")
    return not all(result.done for result in results)
