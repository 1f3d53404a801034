"""Commands about runs."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any

import typer

from trainwright.client import TeamClient
from trainwright.commands import plan, run_actions, run_logs, run_reading
from trainwright.commands.object_names import RunName, find_run
from trainwright.commands.program import Program, continues_without_reader
from trainwright.commands.run_states import States, shown_state
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    Sets,
    TeamSlug,
    TextTable,
    check_spec,
    checkpoint_remark,
    err,
    exit_with_problems,
    format_decimal,
    format_duration,
    format_rate,
    format_validation,
    open_team,
    plural,
    print_error,
    print_json,
    print_table,
    printable,
    read_spec,
    read_valid_spec,
    show_bytes,
    table_of,
)
from trainwright.contracts.api.queue import Priority
from trainwright.contracts.api.runs import Run, RunGroup, RunGrouping, RunView, SavedView
from trainwright.contracts.run_state import FINAL, RunState
from trainwright.sizes import format_bytes

app = typer.Typer(no_args_is_help=True, cls=Program, help="Start, monitor and stop runs.")
app.registered_commands += run_actions.app.registered_commands
app.command("layout")(plan.layout)
app.command("show")(run_reading.show)
app.command("logs")(run_logs.logs)
app.command("compare")(run_reading.compare)

Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only runs with this tag; can be repeated.")]
Search = Annotated[str, typer.Option(help="Only runs with these words in their names.")]
Mine = Annotated[bool, typer.Option("--mine", help="Only your own runs.")]


@app.command("check")
def check(
    spec: Path,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Check whether the server would accept a spec and whether it fits the joined nodes, without submitting it."""
    with open_team(server, key, team) as api:
        whole = read_spec(spec, sets)
        verdict = check_spec(api, whole)
        if as_json:
            with continues_without_reader():
                print_json(verdict)
            raise typer.Exit(1 if verdict.problems else 0)
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
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it ends, and show its progress.")
    ] = False,
    priority: Annotated[
        Priority, typer.Option(help="Runs with a higher priority start first; only owners may use high.")
    ] = Priority.NORMAL,
    as_json: AsJson = False,
) -> None:
    """Start a run from a spec in JSON or YAML; with --wait, wait until it ends. Prints only the run's id."""
    with open_team(server, key, team) as api:
        whole = read_valid_spec(api, spec, sets)
        run = api.submit(whole, priority)
        with continues_without_reader():
            if not print_json(run, as_json):
                typer.echo(run.id)
        _print_warnings(api.plan_run(whole).warnings)
        if wait:
            ended = _wait(api, run.id)
            err.print(_result(ended), soft_wrap=True)
            _finish(ended)


def _print_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        err.print(warning, style="yellow", soft_wrap=True)


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
    as_json: AsJson = False,
) -> None:
    """List the team's runs, newest first, or their groups."""
    with open_team(server, key, team) as api:
        saved = RunView() if view is None else _view_named(api, view).view
        query = _query_of(saved) | _query(state, tag, search, mine)
        grouping = group or saved.group
        if grouping is not None:
            found = api.run_groups(grouping, **query)
            if print_json(found, as_json):
                return
            print_table(_groups(found, grouping), empty="No runs.")
            return
        runs = api.runs(sort=saved.sort.value, order=saved.order.value, **query)
        if print_json(runs, as_json):
            return
        table = table_of("state", "name", "by", "age", "loss", "tokens/s", "progress")
        current = datetime.now(UTC)
        for run in runs:
            values = run.summary.values
            loss, rate = values.get("loss"), values.get("tokens_per_second")
            table.add_row(
                run.id,
                shown_state(run.state),
                run.name,
                run.created_by or "",
                format_duration((current - run.created).total_seconds()),
                format_decimal(loss),
                format_rate(rate),
                # the sentence of a success has its loss again
                plural(run.summary.step, "step") if run.state is RunState.SUCCEEDED else run.sentence,
            )
        print_table(table, empty="No runs.")


def _groups(found: Sequence[RunGroup], grouping: RunGrouping) -> TextTable:
    """A row for each group: of a dataset with its id, of others only with their name."""
    numbers = ("runs", "unfinished", "best loss")
    is_dataset = grouping is RunGrouping.DATASET
    table = table_of("dataset", *numbers) if is_dataset else TextTable(grouping.value, *numbers)
    for item in found:
        name = shown_state(RunState(item.key)) if grouping is RunGrouping.STATE else item.name
        named = (item.key, name) if is_dataset else (name or "without a tag",)
        table.add_row(*named, f"{item.runs:,}", f"{item.live:,}", format_decimal(item.best_loss))
    return table


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
def views(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List your saved views of the team's runs."""
    with open_team(server, key, team) as api:
        found = api.views()
        if print_json(found, as_json):
            return
        table = table_of("name", "filter", "sorted by", "grouped by")
        for saved in found:
            view = saved.view
            order = f"{view.sort} {view.order}"
            table.add_row(saved.id, saved.name, _filter_of(view) or "–", order, view.group or "–")
        print_table(table, empty="No saved views.")


@app.command("save-view")
def save_view(
    name: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    state: States = None,
    tag: Tags = None,
    search: Search = "",
    mine: Mine = False,
    group: RunGrouping | None = None,
    as_json: AsJson = False,
) -> None:
    """Save a view of the team's runs for yourself. Your view of the same name is replaced."""
    view = RunView(
        state=tuple(map(RunState, state or ())), tag=tuple(tag or ()), q=search, mine=mine, group=group
    )
    with open_team(server, key, team) as api:
        saved = api.save_view(name, view)
        if print_json(saved, as_json):
            return
        typer.echo(saved.id)


@app.command("delete-view")
def delete_view(
    view: Annotated[str, typer.Argument(help="Id or name of one of your views.")],
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
) -> None:
    """Delete one of your views."""
    with open_team(server, key, team) as api:
        api.delete_view(_view_named(api, view).id)


def _query(state: Sequence[str] | None, tag: list[str] | None, search: str, mine: bool) -> dict[str, Any]:
    """Filters of a list of runs, as the server names them."""
    asked = {"state": state, "tag": tag, "q": search, "by": "me" if mine else None}
    return {name: value for name, value in asked.items() if value}


def _query_of(view: RunView) -> dict[str, Any]:
    return _query(list(view.state), list(view.tag), view.q, view.mine)


def _filter_of(view: RunView) -> str:
    """`state done, tag a, mine`: the filters of a view by the names of their options."""
    words = [f"state {shown_state(state)}" for state in view.state] + [f"tag {tag}" for tag in view.tag]
    words += [f"search {view.q}"] if view.q else []
    words += ["mine"] if view.mine else []
    return ", ".join(words)


def _view_named(api: TeamClient, name: str) -> SavedView:
    found = next((saved for saved in api.views() if name in (saved.id, saved.name)), None)
    if found is None:
        print_error(f"You have no view {name!r}. `trainwright runs views` lists them.")
        raise typer.Exit(1)
    return found


@app.command("watch")
def watch(run: RunName, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Wait until a run ends, and show its progress. Stopping this command does not affect the run."""
    with open_team(server, key, team) as api:
        ended = _wait(api, find_run(api, run))
        typer.echo(_result(ended))
        _finish(ended)


@app.command("events")
def events(
    run: RunName, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """List the events of a run."""
    with open_team(server, key, team) as api:
        found = api.events(find_run(api, run))
        if print_json(found, as_json):
            return
        for event in found:
            # "Paused by Ada" is not true before the run has stopped.
            state = "Stopping: " if event.state is RunState.STOPPING else ""
            typer.echo(f"{event.time.astimezone():%Y-%m-%d %H:%M:%S}  {state}{event.message}")


@app.command("samples")
def samples(
    run: RunName,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    step: Annotated[
        int | None, typer.Option(help="Only the samples after this step. Default: the newest samples.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="The samples of all validations, oldest first.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the text that the model generated from `validation.prompts`."""
    with open_team(server, key, team) as api:
        found = api.samples(find_run(api, run))
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
    if print_json(chosen, as_json):
        return
    for written in chosen:
        typer.echo(f"step {written.step:,}")
        for sample in written.samples:
            continued = typer.style(printable(sample.prompt), bold=True) + printable(sample.text)
            typer.echo(indent(continued, "  ", lambda _: True) + "\n")


@app.command("checkpoints")
def checkpoints(
    run: RunName, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """List a run's checkpoints."""
    with open_team(server, key, team) as api:
        found = api.checkpoints(find_run(api, run))
        if print_json(found, as_json):
            return
        table = table_of("kind", "step", "validation loss", "size", "remark")
        for checkpoint in found:
            table.add_row(
                checkpoint.id,
                checkpoint.kind,
                f"{checkpoint.step:,}",
                format_validation(checkpoint),
                format_bytes(checkpoint.bytes),
                checkpoint_remark(checkpoint),
            )
        print_table(table, empty="No checkpoints.")


@app.command("download")
def download(
    run: RunName,
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
        api.download(find_run(api, run), folder, checkpoint, show_bytes, overwrite=overwrite)
        err.print()
        typer.echo(str(folder))


def _wait(api: TeamClient, run: str) -> Run:
    """Wait until a run ends. Ctrl-C only stops the waiting, and says so."""
    try:
        return api.wait(run, _RunLine())
    except KeyboardInterrupt:
        if err.is_terminal:
            err.print()  # its line has the run's progress
        err.print(f"The run continues. Cancel it with: trainwright runs cancel {run}", soft_wrap=True)
        raise


def _result(run: Run) -> str:
    return f"{shown_state(run.state)}: {run.sentence}"


def _finish(run: Run) -> None:
    """Fail if the run did not succeed; otherwise print the next command to stderr."""
    if run.state is not RunState.SUCCEEDED:
        raise typer.Exit(1)
    err.print(f"Download its weights: trainwright runs download {run.id} FOLDER", soft_wrap=True)


_SECONDS_BETWEEN_LINES = 60.0


class _RunLine:
    """Shows a run's progress: on one line that a terminal rewrites, otherwise as a line for each new state and minute."""

    def __init__(self) -> None:
        self._state: RunState | None = None
        self._written_at = -math.inf

    def __call__(self, run: Run) -> None:
        loss = run.summary.values.get("loss")
        line = _result(run) + ("" if loss is None else f", loss {format_decimal(loss)}")
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
            if run.state not in FINAL:  # its last line is the command's result
                sys.stderr.write(line[: max(20, err.width - 1)])
        elif run.state not in FINAL and (run.state is not self._state or self._is_due()):
            sys.stderr.write(f"{line}\n")
            self._written_at = time.monotonic()
        self._state = run.state
        sys.stderr.flush()

    def _is_due(self) -> bool:
        return time.monotonic() - self._written_at >= _SECONDS_BETWEEN_LINES
