"""Commands about runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from trainwright.client import TeamClient
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    DryRun,
    Key,
    Server,
    Sets,
    TeamSlug,
    changes_of,
    complain,
    err,
    freed_in_words,
    in_form,
    in_mib,
    open_team,
    out,
    read_spec,
    refuse,
    show_bytes,
    table_of,
)
from trainwright.connection import ApiError
from trainwright.contracts.api.runs import Run
from trainwright.contracts.api.verbs import MOST_RUNS_AT_ONCE, BulkResult, BulkVerb
from trainwright.contracts.run_state import RunState

app = typer.Typer(no_args_is_help=True, help="Start, watch and end runs.")


@app.command("check")
def check(spec: Path, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, sets: Sets = None) -> None:
    """Ask the server whether it would take a spec, without submitting it."""
    with open_team(server, key, team) as api:
        verdict = api.validate(read_spec(spec, sets))
        refuse(verdict.problems)
        typer.echo(f"Valid: {verdict.parameters:,} parameters.")


@app.command("submit")
def submit(
    spec: Path, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, sets: Sets = None, wait: bool = False
) -> None:
    """Start a run from a JSON spec; with --wait, follow it to its end."""
    with open_team(server, key, team) as api:
        run = api.submit(read_spec(spec, sets))
        typer.echo(run.id)
        if wait:
            _finish(api.wait(run.id, _show_run))


@app.command("list")
def list_runs(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, state: RunState | None = None) -> None:
    """List the team's runs, newest first."""
    with open_team(server, key, team) as api:
        table = table_of("state", "name", "loss", "tokens/s", "")
        for run in api.runs(state):
            values = run.summary.values
            loss, rate = values.get("loss"), values.get("tokens_per_second")
            table.add_row(
                run.id, run.state, run.name, in_form(loss, ".3f"), in_form(rate, ",.0f"), run.sentence
            )
        out.print(table)


@app.command("show")
def show(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Print a run as JSON."""
    with open_team(server, key, team) as api:
        typer.echo(api.run(run).model_dump_json(indent=2))


@app.command("watch")
def watch(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Follow a run to its end. Ending this command leaves the run alone."""
    with open_team(server, key, team) as api:
        _finish(api.wait(run, _show_run))


@app.command("events")
def events(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List what happened to a run."""
    with open_team(server, key, team) as api:
        for event in api.events(run):
            typer.echo(f"{event.time.astimezone():%Y-%m-%d %H:%M:%S}  {event.message}")


@app.command("logs")
def logs(
    run: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    attempt: Annotated[int | None, typer.Option(help="The newest when left out.")] = None,
    rank: int = 0,
) -> None:
    """Print the log of one rank."""
    with open_team(server, key, team) as api:
        number = attempt or api.run(run).attempt
        offset = 0
        while True:
            piece = api.log_text(run, number, f"rank-{rank}.log", offset)
            sys.stdout.write(piece.text)
            offset = piece.next_offset
            if piece.end:
                return


@app.command("cancel")
def cancel(runs: list[str], key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Ask the nodes of runs to stop them."""
    with open_team(server, key, team) as api:
        _act(api, BulkVerb.CANCEL, runs)


@app.command("pause")
def pause(runs: list[str], key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Have runs save their state and free their slots, until they are resumed."""
    with open_team(server, key, team) as api:
        _act(api, BulkVerb.PAUSE, runs)


@app.command("resume")
def resume(runs: list[str], key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Queue paused runs again; they go on from their newest checkpoints."""
    with open_team(server, key, team) as api:
        _act(api, BulkVerb.RESUME, runs)


@app.command("edit")
def edit(
    run: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    name: Annotated[str | None, typer.Option(help="Its new name.")] = None,
    notes: Annotated[str | None, typer.Option(help="Replaces its notes.")] = None,
) -> None:
    """Change a run's name or notes."""
    with open_team(server, key, team) as api:
        typer.echo(api.edit(run, name=name, notes=notes).name)


@app.command("tag")
def tag(
    runs: list[str],
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    add: Annotated[list[str] | None, typer.Option("--add", help="A tag to give; may be repeated.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="A tag to take; may be repeated.")
    ] = None,
) -> None:
    """Take tags from runs, then give them others."""
    if not add and not remove:
        complain("Name tags to --add or to --remove.")
        raise typer.Exit(2)
    with open_team(server, key, team) as api:
        changed = [api.change_tags(some, remove=remove or (), add=add or ()) for some in _at_once(runs)]
        _tell([result for results in changed for result in results], lambda _: "done")


@app.command("clone")
def clone(
    run: str, name: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, sets: Sets = None
) -> None:
    """Start a run NAME with the configuration of another, from step 0; --set changes fields."""
    with open_team(server, key, team) as api:
        typer.echo(api.clone(run, name, changes_of(sets)).id)


@app.command("fork")
def fork(
    run: str,
    name: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    checkpoint: Annotated[str | None, typer.Option(help="Id; the newest state when left out.")] = None,
) -> None:
    """Start a run NAME that goes on from a checkpoint of another; --set changes fields."""
    with open_team(server, key, team) as api:
        typer.echo(api.fork(run, name, changes_of(sets), checkpoint).id)


@app.command("delete")
def delete_runs(
    runs: list[str], key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, dry_run: DryRun = False
) -> None:
    """Delete runs that have ended, with their metrics and checkpoints."""
    with open_team(server, key, team) as api:
        if dry_run:
            _tell([_would_free(api, run) for run in runs], _freed)
            return
        _act(api, BulkVerb.DELETE, runs)


@app.command("checkpoints")
def checkpoints(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List a run's checkpoints."""
    with open_team(server, key, team) as api:
        table = table_of("kind", "step", "MiB")
        for checkpoint in api.checkpoints(run):
            table.add_row(checkpoint.id, checkpoint.kind, str(checkpoint.step), in_mib(checkpoint.bytes))
        out.print(table)


@app.command("download")
def download(
    run: str,
    folder: Path,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    checkpoint: Annotated[str | None, typer.Option(help="Id; the newest export when left out.")] = None,
) -> None:
    """Download a checkpoint into a folder, each file checked against its digest."""
    with open_team(server, key, team) as api:
        api.download(run, folder, checkpoint, show_bytes)
        err.print()
        typer.echo(str(folder))


def _act(api: TeamClient, verb: BulkVerb, runs: list[str]) -> None:
    """Do the verb for each run, and tell what became of it, some at a time: what is done is told if the next ones fail."""
    refused = False
    for some in _at_once(list(dict.fromkeys(runs))):
        results = api.act(verb, some)
        done = [result.run for result in results if result.done]
        if verb is BulkVerb.DELETE or not done:
            refused |= _told(results, _freed)
            continue
        shown = {run.id: run.sentence for run in api.runs(ids=done)}
        refused |= _told(results, partial(_sentence, shown))
    if refused:
        raise typer.Exit(1)


def _at_once(runs: list[str]) -> Iterator[list[str]]:
    """As many as the server takes at a time."""
    return (runs[first : first + MOST_RUNS_AT_ONCE] for first in range(0, len(runs), MOST_RUNS_AT_ONCE))


def _would_free(api: TeamClient, run: str) -> BulkResult:
    try:
        return BulkResult(run=run, done=True, freed=api.delete_run(run, dry_run=True))
    except ApiError as refused:
        return BulkResult(run=run, done=False, code=refused.code, detail=refused.detail)


def _freed(result: BulkResult) -> str:
    return "deleted" if result.freed is None else freed_in_words(result.freed)


def _sentence(shown: Mapping[str, str], result: BulkResult) -> str:
    return shown.get(result.run, "done")


def _tell(results: list[BulkResult], words: Callable[[BulkResult], str]) -> None:
    """A line for each run; the command fails if one was refused."""
    if _told(results, words):
        raise typer.Exit(1)


def _told(results: list[BulkResult], words: Callable[[BulkResult], str]) -> bool:
    """A line for each run, and whether one was refused."""
    for result in results:
        if result.done:
            typer.echo(f"{result.run}  {words(result)}")
        else:
            complain(f"{result.run}  {result.detail}")
    return not all(result.done for result in results)


def _finish(run: Run) -> None:
    err.print()
    typer.echo(run.sentence)
    if run.state is not RunState.SUCCEEDED:
        raise typer.Exit(1)


def _show_run(run: Run) -> None:
    if not sys.stderr.isatty():
        return
    loss = in_form(run.summary.values.get("loss"), ".3f")
    line = (
        f"{run.state}  step {run.summary.step:,} of {run.spec.schedule.steps:,}  loss {loss}  {run.sentence}"
    )
    sys.stderr.write(f"\r\033[K{line[: max(20, err.width - 1)]}")
    sys.stderr.flush()
