"""Commands about runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any

import typer

from trainwright.client import TeamClient
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    DryRun,
    Key,
    Server,
    Sets,
    TeamSlug,
    describe_freed,
    err,
    exit_with_problems,
    format_bytes,
    format_or_dash,
    format_validation,
    open_team,
    out,
    parse_sets,
    print_error,
    print_table,
    printable,
    read_spec,
    show_bytes,
    table_of,
)
from trainwright.contracts.api.actions import MOST_RUNS_AT_ONCE, BulkResult, RunAction
from trainwright.contracts.api.queue import Priority
from trainwright.contracts.api.runs import Run, RunGrouping, RunView
from trainwright.contracts.run_state import RunState
from trainwright.transport.connection import ApiError

app = typer.Typer(no_args_is_help=True, help="Start, monitor and stop runs.")

States = Annotated[
    list[RunState] | None, typer.Option("--state", help="Only runs in this state; can be repeated.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only runs with this tag; can be repeated.")]
Search = Annotated[str, typer.Option(help="Only runs with these words in their names.")]
Mine = Annotated[bool, typer.Option("--mine", help="Only your own runs.")]


@app.command("check")
def check(spec: Path, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, sets: Sets = None) -> None:
    """Check whether the server would accept a spec and whether it fits the joined nodes, without submitting it."""
    with open_team(server, key, team) as api:
        whole = read_spec(spec, sets)
        verdict = api.validate(whole)
        exit_with_problems(verdict.problems)
        typer.echo(f"Valid: {verdict.parameters:,} parameters.")
        _print_warnings(verdict.warnings)
        _print_warnings(api.plan_run(whole).warnings)


@app.command("submit")
def submit(
    spec: Path,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    wait: bool = False,
    priority: Annotated[
        Priority, typer.Option(help="Those of a higher priority start first; high is for owners.")
    ] = Priority.NORMAL,
) -> None:
    """Start a run from a JSON spec; with --wait, wait until it ends."""
    with open_team(server, key, team) as api:
        whole = read_spec(spec, sets)
        run = api.submit(whole, priority)
        typer.echo(run.id)
        _print_warnings(api.plan_run(whole).warnings)
        if wait:
            _finish(api.wait(run.id, _show_run))


def _print_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        err.print(warning, style="yellow", markup=False, soft_wrap=True)


@app.command("list")
def list_runs(
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    state: States = None,
    tag: Tags = None,
    search: Search = "",
    mine: Mine = False,
    view: Annotated[
        str | None,
        typer.Option(help="Name of a saved view. An option replaces the view's filter of the same kind."),
    ] = None,
    group: Annotated[
        RunGrouping | None, typer.Option(help="List the groups of the runs instead, with their best loss.")
    ] = None,
) -> None:
    """List the team's runs, newest first, or their groups."""
    with open_team(server, key, team) as api:
        saved = RunView() if view is None else _view_named(api, view)
        query = _query_of(saved) | _query(state, tag, search, mine)
        grouping = group or saved.group
        if grouping is not None:
            groups = table_of("name", "runs", "not ended", "best loss")
            for item in api.run_groups(grouping, **query):
                best = format_or_dash(item.best_loss, ".3f")
                name = item.name or "without a tag"
                groups.add_row(item.key or "–", name, f"{item.runs:,}", f"{item.live:,}", best)
            out.print(groups)
            return
        table = table_of("state", "name", "loss", "tokens/s", "")
        for run in api.runs(sort=saved.sort.value, order=saved.order.value, **query):
            values = run.summary.values
            loss, rate = values.get("loss"), values.get("tokens_per_second")
            table.add_row(
                run.id,
                run.state,
                run.name,
                format_or_dash(loss, ".3f"),
                format_or_dash(rate, ",.0f"),
                run.sentence,
            )
        print_table(table, empty="No runs.")


@app.command("export")
def export(
    file: Path,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    state: States = None,
    tag: Tags = None,
    search: Search = "",
    mine: Mine = False,
) -> None:
    """Write the team's runs to FILE, one row per run. Its name ends with .csv or .parquet, which selects the format."""
    if file.suffix not in (".csv", ".parquet"):
        print_error(f"{file} ends with neither .csv nor .parquet. Choose a name with one of these endings.")
        raise typer.Exit(2)
    with open_team(server, key, team) as api:
        typer.echo(str(api.export_runs(file, **_query(state, tag, search, mine))))


@app.command("views")
def views(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List your saved views of the team's runs. The Runs page saves them."""
    with open_team(server, key, team) as api:
        table = table_of("name", "filter", "sorted by", "grouped by")
        for saved in api.views():
            view = saved.view
            filters = [f"{name}={value}" for name, value in _query_of(view).items()]
            order = f"{view.sort} {view.order}"
            table.add_row(saved.id, saved.name, ", ".join(filters) or "–", order, view.group or "–")
        print_table(table, empty="No saved views.")


def _query(state: list[RunState] | None, tag: list[str] | None, search: str, mine: bool) -> dict[str, Any]:
    """Filters of a list of runs, as the server names them."""
    asked = {"state": state, "tag": tag, "q": search, "by": "me" if mine else None}
    return {name: value for name, value in asked.items() if value}


def _query_of(view: RunView) -> dict[str, Any]:
    return _query(list(view.state), list(view.tag), view.q, view.mine)


def _view_named(api: TeamClient, name: str) -> RunView:
    found = next((saved.view for saved in api.views() if name in (saved.id, saved.name)), None)
    if found is None:
        print_error(f"You have no view {name!r}. `trainwright runs views` lists them.")
        raise typer.Exit(1)
    return found


@app.command("show")
def show(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Print a run as JSON."""
    with open_team(server, key, team) as api:
        typer.echo(api.run(run).model_dump_json(indent=2))


@app.command("watch")
def watch(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Wait until a run ends, and show its progress. Stopping this command does not affect the run."""
    with open_team(server, key, team) as api:
        _finish(api.wait(run, _show_run))


@app.command("events")
def events(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List the events of a run."""
    with open_team(server, key, team) as api:
        for event in api.events(run):
            typer.echo(f"{event.time.astimezone():%Y-%m-%d %H:%M:%S}  {event.message}")


@app.command("samples")
def samples(
    run: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    step: Annotated[
        int | None, typer.Option(help="Only the samples after this step. Default: the newest samples.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="The samples of all validations, oldest first.")
    ] = False,
) -> None:
    """Print the text that the model generated from `validation.prompts`."""
    with open_team(server, key, team) as api:
        found = api.samples(run)
    if not found:
        print_error(
            "This run has no samples: its spec has no validation.prompts, or it has not validated yet."
        )
        raise typer.Exit(1)
    if step is not None:
        chosen = [written for written in found if written.step == step]
    else:
        chosen = found[::-1] if every else found[:1]
    if not chosen:
        steps = ", ".join(f"{written.step:,}" for written in found[:20])
        print_error(f"No samples were written after step {step:,}. The newest are from steps {steps}.")
        raise typer.Exit(1)
    for written in chosen:
        typer.echo(f"step {written.step:,}")
        for sample in written.samples:
            continued = typer.style(printable(sample.prompt), bold=True) + printable(sample.text)
            typer.echo(indent(continued, "  ", lambda _: True) + "\n")


@app.command("logs")
def logs(
    run: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    attempt: Annotated[int | None, typer.Option(help="Default: the newest one.")] = None,
    rank: int = 0,
) -> None:
    """Print the log of one rank."""
    with open_team(server, key, team) as api:
        number = attempt or api.run(run).attempt
        offset = 0
        while True:
            part = api.log_text(run, number, f"rank-{rank}.log", offset)
            sys.stdout.write(part.text)
            offset = part.next_offset
            if part.end:
                return


@app.command("cancel")
def cancel(runs: list[str], key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Cancel runs."""
    with open_team(server, key, team) as api:
        _act(api, RunAction.CANCEL, runs)


@app.command("pause")
def pause(runs: list[str], key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Pause runs: they save their state and free their slots until they are resumed."""
    with open_team(server, key, team) as api:
        _act(api, RunAction.PAUSE, runs)


@app.command("resume")
def resume(runs: list[str], key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Resume paused runs from their newest checkpoints."""
    with open_team(server, key, team) as api:
        _act(api, RunAction.RESUME, runs)


@app.command("move")
def move(
    run: str,
    key: Key,
    team: TeamSlug,
    off: Annotated[str, typer.Option(help="Name of the node that the run leaves.")],
    server: Server = LOCAL_SERVER,
) -> None:
    """Move a run off one of its nodes: it saves its state and is placed again without that node."""
    with open_team(server, key, team) as api:
        typer.echo(api.move(run, off).sentence)


@app.command("edit")
def edit(
    run: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    name: Annotated[str | None, typer.Option(help="New name of the run.")] = None,
    notes: Annotated[str | None, typer.Option(help="New notes of the run.")] = None,
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
    add: Annotated[list[str] | None, typer.Option("--add", help="A tag to add; can be repeated.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="A tag to remove; can be repeated.")
    ] = None,
) -> None:
    """Remove tags from runs, then add others."""
    if not add and not remove:
        print_error("Give tags to --add or --remove.")
        raise typer.Exit(2)
    with open_team(server, key, team) as api:
        changed = [api.change_tags(some, remove=remove or (), add=add or ()) for some in _batches(runs)]
        _print_results_or_fail([result for results in changed for result in results], lambda _: "done")


@app.command("clone")
def clone(
    run: str, name: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, sets: Sets = None
) -> None:
    """Start a run NAME with the configuration of another one, from step 0; --set changes fields."""
    with open_team(server, key, team) as api:
        typer.echo(api.clone(run, name, parse_sets(sets)).id)


@app.command("fork")
def fork(
    run: str,
    name: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Id of a checkpoint. Default: the newest one.")
    ] = None,
) -> None:
    """Start a run NAME that continues from a checkpoint of another one; --set changes fields."""
    with open_team(server, key, team) as api:
        typer.echo(api.fork(run, name, parse_sets(sets), checkpoint).id)


@app.command("delete")
def delete_runs(
    runs: list[str], key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, dry_run: DryRun = False
) -> None:
    """Delete ended runs with their metrics and checkpoints."""
    with open_team(server, key, team) as api:
        if dry_run:
            _print_results_or_fail([_would_free(api, run) for run in runs], _freed)
            return
        _act(api, RunAction.DELETE, runs)


@app.command("checkpoints")
def checkpoints(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List a run's checkpoints."""
    with open_team(server, key, team) as api:
        table = table_of("kind", "step", "validation loss", "size")
        for checkpoint in api.checkpoints(run):
            table.add_row(
                checkpoint.id,
                checkpoint.kind,
                str(checkpoint.step),
                format_validation(checkpoint),
                format_bytes(checkpoint.bytes),
            )
        print_table(table, empty="No checkpoints.")


@app.command("download")
def download(
    run: str,
    folder: Path,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    checkpoint: Annotated[
        str | None, typer.Option(help="Id of a checkpoint. Default: the newest export.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of another model in the folder.")
    ] = False,
) -> None:
    """Download a checkpoint to a folder, verifying the digest of each file. Repeat it to resume.

    A folder with files of another model is refused.
    """
    with open_team(server, key, team) as api:
        api.download(run, folder, checkpoint, show_bytes, overwrite=overwrite)
        err.print()
        typer.echo(str(folder))


def _act(api: TeamClient, action: RunAction, runs: list[str]) -> None:
    """Apply an action to runs in batches and print each result, so that results are shown even if a later batch fails."""
    failed = False
    for some in _batches(list(dict.fromkeys(runs))):
        results = api.act(action, some)
        done = [result.run for result in results if result.done]
        if action is RunAction.DELETE or not done:
            failed |= _print_results(results, _freed)
            continue
        shown = {run.id: run.sentence for run in api.runs(ids=done)}
        failed |= _print_results(results, partial(_sentence, shown))
    if failed:
        raise typer.Exit(1)


def _batches(runs: list[str]) -> Iterator[list[str]]:
    """``runs`` in batches of as many as the server accepts at once."""
    return (runs[first : first + MOST_RUNS_AT_ONCE] for first in range(0, len(runs), MOST_RUNS_AT_ONCE))


def _would_free(api: TeamClient, run: str) -> BulkResult:
    try:
        return BulkResult(run=run, done=True, freed=api.delete_run(run, dry_run=True))
    except ApiError as error:
        return BulkResult(run=run, done=False, code=error.code, detail=error.detail)


def _freed(result: BulkResult) -> str:
    return "deleted" if result.freed is None else describe_freed(result.freed)


def _sentence(shown: Mapping[str, str], result: BulkResult) -> str:
    return shown.get(result.run, "done")


def _print_results_or_fail(results: list[BulkResult], describe: Callable[[BulkResult], str]) -> None:
    """Print a line for each run; the command fails if the action failed for one."""
    if _print_results(results, describe):
        raise typer.Exit(1)


def _print_results(results: list[BulkResult], describe: Callable[[BulkResult], str]) -> bool:
    """Print a line for each run, and return whether the action failed for one."""
    for result in results:
        if result.done:
            typer.echo(f"{result.run}  {describe(result)}")
        else:
            print_error(f"{result.run}  {result.detail}")
    return not all(result.done for result in results)


def _finish(run: Run) -> None:
    err.print()
    typer.echo(run.sentence)
    if run.state is not RunState.SUCCEEDED:
        raise typer.Exit(1)


def _show_run(run: Run) -> None:
    if not sys.stderr.isatty():
        return
    loss = format_or_dash(run.summary.values.get("loss"), ".3f")
    line = (
        f"{run.state}  step {run.summary.step:,} of {run.spec.schedule.steps:,}  loss {loss}  {run.sentence}"
    )
    sys.stderr.write(f"\r\033[K{line[: max(20, err.width - 1)]}")
    sys.stderr.flush()
