"""The command line: a thin cover over the client, one command for each thing the web pages can do.

It finds the server, the key and the team in ``TRAINWRIGHT_SERVER``, ``TRAINWRIGHT_KEY`` and ``TRAINWRIGHT_TEAM``.
Specs are JSON files; ``--set section.key=value`` changes one value, and
``--set section.key=`` makes it null.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args

import httpx
import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.table import Column, Table

from trainwright import spec_page
from trainwright.client import Client, TeamClient
from trainwright.connection import ApiError, DigestMismatchError
from trainwright.contracts.api import Run
from trainwright.contracts.base import Problem, problems
from trainwright.contracts.presets import PRESETS
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState

app = typer.Typer(no_args_is_help=True, help="Train language models on a Trainwright server.")
datasets_app = typer.Typer(no_args_is_help=True, help="Upload and look at datasets.")
runs_app = typer.Typer(no_args_is_help=True, help="Start, watch and end runs.")
app.add_typer(datasets_app, name="datasets")
app.add_typer(runs_app, name="runs")
out = Console(width=None if sys.stdout.isatty() else 200)
err = Console(stderr=True)

Server = Annotated[str, typer.Option(envvar="TRAINWRIGHT_SERVER", help="Address of the server.")]
Key = Annotated[str, typer.Option(envvar="TRAINWRIGHT_KEY", help="Your API key.", show_default=False)]
TeamSlug = Annotated[
    str, typer.Option("--team", envvar="TRAINWRIGHT_TEAM", help="Your team.", show_default=False)
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change one value, such as schedule.steps=500 or precision.kind=fp8; nothing after the equals sign sets"
        " null where the field may be null, as in optimizer.clip_norm= for no clipping.",
    ),
]
LOCAL_SERVER = "http://127.0.0.1:8000"
Value = TypeVar("Value")


@app.command()
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the reference page.")] = False,
) -> None:
    """Print the JSON Schema of a run's spec."""
    typer.echo(
        spec_page.markdown() if markdown else json.dumps(RunSpec.model_json_schema(), indent=2), nl=False
    )


@app.command()
def presets() -> None:
    """List the named model sizes."""
    table = Table("name", "layers", "width", "heads", "kv heads", box=None)
    for name, model in PRESETS.items():
        table.add_row(
            name, *(str(n) for n in (model.layers, model.width, model.heads, model.key_value_heads))
        )
    out.print(table)


@datasets_app.command("upload")
def upload(name: str, files: list[Path], key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Upload `.txt` and `.jsonl` files as a new dataset."""
    with _team(server, key, team) as api:
        dataset = api.upload(name, files, _show_bytes)
        err.print()
        typer.echo(dataset.id)


@datasets_app.command("list")
def list_datasets(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List the team's datasets."""
    with _team(server, key, team) as api:
        table = _list_of("name", "version", "MiB")
        for dataset in api.datasets():
            newest = dataset.versions[0]
            table.add_row(dataset.id, dataset.name, str(newest.number), f"{newest.bytes / 2**20:.1f}")
        out.print(table)


@datasets_app.command("rejected")
def rejected(dataset: str, version: int, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List the documents of a version that could not be read."""
    with _team(server, key, team) as api:
        for document in api.rejected_documents(dataset, version):
            typer.echo(f"{document.file}:{document.line}: {document.reason}")


@datasets_app.command("delete")
def delete_dataset(dataset: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Delete a dataset that no run uses."""
    with _team(server, key, team) as api:
        api.delete_dataset(dataset)


@runs_app.command("check")
def check(spec: Path, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, sets: Sets = None) -> None:
    """Ask the server whether it would take a spec, without submitting it."""
    with _team(server, key, team) as api:
        verdict = api.validate(_spec(spec, sets))
        _refuse(verdict.problems)
        typer.echo(f"Valid: {verdict.parameters:,} parameters.")


@runs_app.command("submit")
def submit(
    spec: Path, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, sets: Sets = None, wait: bool = False
) -> None:
    """Start a run from a JSON spec; with --wait, follow it to its end."""
    with _team(server, key, team) as api:
        run = api.submit(_spec(spec, sets))
        typer.echo(run.id)
        if wait:
            _finish(api.wait(run.id, _show_run))


@runs_app.command("list")
def list_runs(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, state: RunState | None = None) -> None:
    """List the team's runs, newest first."""
    with _team(server, key, team) as api:
        table = _list_of("state", "name", "loss", "tokens/s", "")
        for run in api.runs(state):
            values = run.summary.values
            loss, rate = values.get("loss"), values.get("tokens_per_second")
            table.add_row(
                run.id, run.state, run.name, _number(loss, ".3f"), _number(rate, ",.0f"), run.sentence
            )
        out.print(table)


@runs_app.command("show")
def show(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Print a run as JSON."""
    with _team(server, key, team) as api:
        typer.echo(api.run(run).model_dump_json(indent=2))


@runs_app.command("watch")
def watch(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Follow a run to its end. Ending this command leaves the run alone."""
    with _team(server, key, team) as api:
        _finish(api.wait(run, _show_run))


@runs_app.command("events")
def events(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List what happened to a run."""
    with _team(server, key, team) as api:
        for event in api.events(run):
            typer.echo(f"{event.time.astimezone():%Y-%m-%d %H:%M:%S}  {event.message}")


@runs_app.command("logs")
def logs(
    run: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    attempt: Annotated[int | None, typer.Option(help="The newest when left out.")] = None,
    rank: int = 0,
) -> None:
    """Print the log of one rank."""
    with _team(server, key, team) as api:
        number = attempt or api.run(run).attempt
        offset = 0
        while True:
            piece = api.log_text(run, number, f"rank-{rank}.log", offset)
            sys.stdout.write(piece.text)
            offset = piece.next_offset
            if piece.end:
                return


@runs_app.command("cancel")
def cancel(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Ask a run's nodes to stop it."""
    with _team(server, key, team) as api:
        typer.echo(api.cancel(run).sentence)


@runs_app.command("delete")
def delete_run(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Delete a run that has ended, with its metrics and checkpoints."""
    with _team(server, key, team) as api:
        api.delete_run(run)


@runs_app.command("checkpoints")
def checkpoints(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List a run's checkpoints."""
    with _team(server, key, team) as api:
        table = _list_of("kind", "step", "MiB")
        for checkpoint in api.checkpoints(run):
            table.add_row(
                checkpoint.id, checkpoint.kind, str(checkpoint.step), f"{checkpoint.bytes / 2**20:.1f}"
            )
        out.print(table)


@runs_app.command("download")
def download(
    run: str,
    folder: Path,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    checkpoint: Annotated[str | None, typer.Option(help="Id; the newest export when left out.")] = None,
) -> None:
    """Download a checkpoint into a folder, each file checked against its digest."""
    with _team(server, key, team) as api:
        api.download(run, folder, checkpoint, _show_bytes)
        err.print()
        typer.echo(str(folder))


@contextmanager
def _team(server: str, key: str, team: str) -> Iterator[TeamClient]:
    try:
        with Client(server, key) as client:
            yield client.team(team)
    except ApiError as error:
        _complain(str(error))
        raise typer.Exit(1) from error
    except (LookupError, OSError, DigestMismatchError) as error:
        _complain(str(error))
        raise typer.Exit(1) from error
    except httpx.TransportError as error:
        _complain(f"No answer from {server}: {error}. Is the server running, and is the address right?")
        raise typer.Exit(1) from error


def _spec(path: Path, sets: list[str] | None) -> dict[str, Any]:
    """The spec file with the changes of ``--set``, checked as far as it can be without the server."""
    try:
        spec: dict[str, Any] = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        _complain(f"{path} is not valid JSON: {error}.")
        raise typer.Exit(2) from error
    for change in sets or []:
        _set(spec, change)
    try:
        RunSpec.model_validate(spec)
    except ValidationError as error:
        _refuse(problems(error, RunSpec))
    return spec


def _set(spec: dict[str, Any], change: str) -> None:
    path, equals, text = change.partition("=")
    if not equals:
        _complain(f"--set {change}: write it as section.key=value.")
        raise typer.Exit(2)
    *sections, key = parts = path.split(".")
    for section in sections:
        if spec.get(section) is None:  # as the copied spec of a run says it, for instance precision.fp8
            spec[section] = {}
        spec = spec[section]
        if not isinstance(spec, dict):
            _complain(f"--set {change}: '{section}' is a value, not a section.")
            raise typer.Exit(2)
    if text == "" and _may_be_null(parts):
        spec[key] = None
        return
    try:
        spec[key] = json.loads(text)
    except json.JSONDecodeError:
        spec[key] = text


def _may_be_null(path: list[str]) -> bool:
    """Whether a field of the spec takes null; one that does not exist is for validation to name."""
    section: type[BaseModel] | None = RunSpec
    kinds: tuple[Any, ...] = ()
    for key in path:
        field = section.model_fields.get(key) if section is not None else None
        if field is None:
            return False
        kinds = get_args(field.annotation) or (field.annotation,)
        section = next(
            (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None
        )
    return NoneType in kinds


def _refuse(found: list[Problem]) -> None:
    if not found:
        return
    for problem in found:
        _complain(f"{problem.field}: {problem.message}")
    raise typer.Exit(1)


def _finish(run: Run) -> None:
    err.print()
    typer.echo(run.sentence)
    if run.state is not RunState.SUCCEEDED:
        raise typer.Exit(1)


def _show_run(run: Run) -> None:
    if not sys.stderr.isatty():
        return
    loss = _number(run.summary.values.get("loss"), ".3f")
    line = (
        f"{run.state}  step {run.summary.step:,} of {run.spec.schedule.steps:,}  loss {loss}  {run.sentence}"
    )
    sys.stderr.write(f"\r\033[K{line[: max(20, err.width - 1)]}")
    sys.stderr.flush()


def _show_bytes(done: int, total: int) -> None:
    if not sys.stderr.isatty():
        return
    sys.stderr.write(f"\r\033[K{done / 2**20:,.1f} of {total / 2**20:,.1f} MiB")
    sys.stderr.flush()


def _complain(text: str) -> None:
    err.print(text, style="red", markup=False, soft_wrap=True)


def _list_of(*columns: str) -> Table:
    """A table whose first column is an id, which is never cut off: people copy it."""
    return Table(Column("id", no_wrap=True, min_width=30), *columns, box=None)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


if __name__ == "__main__":
    app()
