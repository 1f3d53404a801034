"""Shared by all commands: server, key and team options, `--set`, tables, errors."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args

import httpx
import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console, RenderableType
from rich.padding import PaddingDimensions
from rich.style import StyleType
from rich.table import Column, Table
from rich.text import Text

from trainwright.client import Client, TeamClient
from trainwright.commands import stored_keys
from trainwright.commands.spec_files import read_object
from trainwright.contracts.api.actions import FreedSpace
from trainwright.contracts.api.checkpoints import Checkpoint
from trainwright.contracts.api.runs import SpecCheck
from trainwright.contracts.base import Problem, problems, problems_in
from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.spec_upgrade import upgrade_field, upgrade_spec
from trainwright.sizes import format_bytes, trimmed
from trainwright.transport.errors import ApiError, DigestMismatchError, FileChangedError
from trainwright.transport.tls import is_untrusted

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PETAFLOP_DAY = 1e15 * 86_400

# Neither interprets what people have written: [bold] and :smile: are not markup.
out = Console(width=None if sys.stdout.isatty() else 200, markup=False, emoji=False)
err = Console(stderr=True, markup=False, emoji=False)


def _server_of_login(context: typer.Context, server: str) -> str:
    """Without an address and a key, the server of the last `trainwright login`."""
    source = context.get_parameter_source("server")
    if source is None or source.name != "DEFAULT" or context.params.get("key"):
        return server
    return stored_keys.default_server() or server


def _team_given(context: typer.Context, team: str) -> str:
    """Refuse an empty team, such as that of an unset variable in a script: it does not mean the only team."""
    source = context.get_parameter_source("team")
    if not team and source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter("It is empty. Name a team.")
    return team


Server = Annotated[
    str,
    typer.Option(
        envvar="TRAINWRIGHT_SERVER",
        callback=_server_of_login,
        help="Address of the server. Without it, and without a key, that of the last `trainwright login`.",
    ),
]
Key = Annotated[
    str,
    typer.Option(
        envvar="TRAINWRIGHT_KEY",
        default_factory=str,
        help="Your API key. Without it, the one that `trainwright login` stored.",
        show_default=False,
    ),
]
TeamSlug = Annotated[
    str,
    typer.Option(
        "--team",
        envvar="TRAINWRIGHT_TEAM",
        callback=_team_given,
        default_factory=str,
        help="Your team. Not needed if you are in one team only.",
        show_default=False,
    ),
]
NamedTeam = Annotated[
    str,
    typer.Option(
        "--team", envvar="TRAINWRIGHT_TEAM", callback=_team_given, help="Your team. Always needed here."
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change one value, such as schedule.steps=500 or precision.kind=fp8. An empty value sets null if the field"
        " may be null, for example optimizer.clip_norm= for no clipping.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the server's response as JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be freed.")]
LOCAL_SERVER = "http://127.0.0.1:8000"
Value = TypeVar("Value")


@contextmanager
def open_team(server: str, key: str, team: str) -> Iterator[TeamClient]:
    """Calls of a team; without a name, of the only one in which the key's owner is."""
    with open_client(server, key) as client:
        yield client.team(team or _only_team(client))


def _only_team(client: Client) -> str:
    teams = [membership.slug for membership in client.me().teams]
    if len(teams) == 1:
        return teams[0]
    if not teams:
        print_error("You are not in a team. Ask an owner of one to invite you.")
        raise typer.Exit(1)
    print_error(
        f"You are in several teams: {', '.join(teams)}. Choose one with --team, or set TRAINWRIGHT_TEAM."
    )
    raise typer.Exit(2)


@contextmanager
def open_client(server: str, key: str) -> Iterator[Client]:
    """A connection, with the key or that of the last login. Errors are printed and end the command."""
    found = key or stored_keys.key_of(server)
    if found is None:
        print_error(
            f"There is no key for {server}. Run `trainwright login --server {server}`, or set TRAINWRIGHT_KEY."
        )
        raise typer.Exit(1)
    with reported_errors(server), Client(server, found) as client:
        yield client


@contextmanager
def reported_errors(server: str) -> Iterator[None]:
    """Print errors, which end the command."""
    try:
        yield
    except ApiError as error:
        print_error(str(error))
        raise typer.Exit(1) from error
    except BrokenPipeError:
        raise  # by the program as a whole
    except OSError as error:
        named = error.filename is not None and error.strerror
        print_error(f"{error.filename}: {error.strerror}." if named else str(error))
        raise typer.Exit(1) from error
    except ValidationError as error:  # invalid arguments, found before anything was sent
        exit_with_problems(problems_in(error.errors(include_url=False), None))
    except (LookupError, ValueError, DigestMismatchError, FileChangedError) as error:
        print_error(str(error))
        raise typer.Exit(1) from error
    except httpx.RequestError as error:
        print_error(f"No response from {server}: {error}. {_hint(error)}")
        raise typer.Exit(1) from error


def _hint(error: httpx.RequestError) -> str:
    if is_untrusted(error):
        return (
            "If its certificate is from an authority of your own, add that to the operating system's authorities,"
            " or name its file in SSL_CERT_FILE. (The public ones are in the package ca-certificates on Linux.)"
        )
    return "Is the server running, and is the address correct?"


def read_spec(path: Path, sets: list[str] | None) -> dict[str, Any]:
    """The spec file with the changes of ``--set``. It need not be valid."""
    spec: dict[str, Any] = upgrade_spec(read_object(path))
    for change in sets or []:
        apply_set(spec, change)
    return spec


def read_valid_spec(api: TeamClient, path: Path, sets: list[str] | None) -> dict[str, Any]:
    """As `read_spec`, but problems end the command: all that the server finds, if there are any here."""
    spec = read_spec(path, sets)
    found = spec_problems(spec)
    if found:
        exit_with_problems(check_spec(api, spec).problems or found)
    return spec


def check_spec(api: TeamClient, spec: Mapping[str, Any]) -> SpecCheck:
    """The server's check of a spec; that of `spec_problems` if the spec cannot be sent, for example because of a NaN."""
    try:
        return api.validate(spec)
    except ValueError:
        found = spec_problems(spec)
        if not found:
            raise
        return SpecCheck(valid=False, problems=found)


def spec_problems(spec: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with a spec, as far as it can be found without the server."""
    try:
        RunSpec.model_validate(spec)
    except ValidationError as error:
        return problems(error, RunSpec)
    return []


def apply_set(spec: dict[str, Any], change: str, models: Mapping[str, type[BaseModel]] | None = None) -> None:
    """Apply one ``--set`` to ``spec``: a run's spec, or if ``models`` is given, a dict with these sections at the top."""
    path, equals, text = change.partition("=")
    if not equals:
        print_error(f"--set {change}: write it as section.key=value.")
        raise typer.Exit(2)
    path = upgrade_field(path)
    *sections, key = parts = path.split(".")
    for section in sections:
        if spec.get(section) is None:  # null in stored specs, for example precision.fp8
            spec[section] = {}
        spec = spec[section]
        if not isinstance(spec, dict):
            print_error(f"--set {change}: '{section}' is a value, not a section.")
            raise typer.Exit(2)
    if text == "" and is_nullable(parts, models):
        spec[key] = None
        return
    try:
        spec[key] = json.loads(text)
    except json.JSONDecodeError:
        spec[key] = text


def parse_sets(sets: list[str] | None) -> dict[str, Any]:
    """Changes of ``--set`` to a spec on the server, by dotted name."""
    changes: dict[str, Any] = {}
    for change in sets or []:
        nested: dict[str, Any] = {}
        apply_set(nested, change)
        field = upgrade_field(change.partition("=")[0])
        value: Any = nested
        for part in field.split("."):
            value = value[part]
        changes[field] = value
    return changes


def is_nullable(path: list[str], models: Mapping[str, type[BaseModel]] | None) -> bool:
    """Whether a field of the spec may be null. Unknown fields are left to validation."""
    section: type[BaseModel] | None = RunSpec
    if models is not None:
        section, path = models.get(path[0]), path[1:]
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


def exit_with_problems(found: list[Problem]) -> None:
    if not found:
        return
    for problem in found:
        print_error(f"{problem.field}: {problem.message}")
    raise typer.Exit(1)


def show_bytes(done: int, total: int) -> None:
    if not sys.stderr.isatty():
        return
    sys.stderr.write(f"\r\033[K{done / 2**20:,.1f} of {total / 2**20:,.1f} MiB")
    sys.stderr.flush()


def print_error(text: str) -> None:
    err.print(text, style="red", soft_wrap=True)


def print_json(response: BaseModel | Sequence[BaseModel], as_json: bool = True) -> bool:
    """Print the server's response if JSON is asked for, and return whether it is."""
    if as_json:
        models = [response] if isinstance(response, BaseModel) else response
        plain = [model.model_dump(mode="json") for model in models]
        typer.echo(json.dumps(plain[0] if isinstance(response, BaseModel) else plain, indent=2))
    return as_json


def printable(text: str) -> str:
    """``text`` from a model, without control characters, which could move the cursor or change the terminal's title."""
    return _CONTROL.sub("\ufffd", text)


class TextTable(Table):
    """A table without lines that shows text as it is: brackets are not markup, and control characters are replaced."""

    def __init__(
        self, *columns: Column | str, show_header: bool = True, padding: PaddingDimensions = (0, 1)
    ) -> None:
        super().__init__(*columns, box=None, show_header=show_header, padding=padding)
        for column in self.columns:
            column.header = _as_text(column.header)

    def add_row(
        self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False
    ) -> None:
        super().add_row(*(_as_text(cell or "") for cell in cells), style=style, end_section=end_section)


def _as_text(cell: RenderableType) -> RenderableType:
    return Text(printable(cell)) if isinstance(cell, str) else cell


def table_of(*columns: str) -> TextTable:
    """A table whose first column is an id, which is never truncated so that it can be copied."""
    return TextTable(Column("id", no_wrap=True, min_width=30), *columns)


def print_table(table: Table, *, empty: str) -> None:
    """Print a table, or the sentence ``empty`` if it has no rows."""
    if table.row_count:
        out.print(table)
    else:
        typer.echo(empty)


def plural(count: int, one: str, many: str = "") -> str:
    """1 rank, 1,024 ranks."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def format_slots(count: int, device: Device | str) -> str:
    """2 GPUs, 1 CPU slot, as the pages write it."""
    return plural(count, {"cuda": "GPU", "cpu": "CPU slot"}.get(device, "slot"))


def format_short(number: float) -> str:
    """124 M, 1.3 B: the size of a model, as the pages write it."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{trimmed(number / size)} {unit}"
    return f"{number:,.0f}"


def format_decimal(value: float | None) -> str:
    """A loss, or another value, as the pages write it: 3.124, 437.1, 1,901, 0.00312, 1.37e11; – without one."""
    if value is None:
        return "–"
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if size == 0:
        return "0"
    if size >= 1e6 or size < 1e-3:
        digits, _, power = f"{value:.2e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    if size >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 100 else f"{value:.3f}" if size >= 0.1 else f"{value:#.3g}"


def format_rate(value: float | None) -> str:
    """441,000 for 441,037: four digits of a rate are enough; – without one."""
    if value is None:
        return "–"
    if value < 1_000:
        return f"{value:.{1 if value < 10 else 0}f}"
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{round(value / unit) * unit:,.0f}"


def format_duration(seconds: float) -> str:
    """4 ms, 3.2 s, 45 s, 2 min 10 s, 45 min, 1 h 30 min, 5 d 2 h."""
    milliseconds = seconds * 1_000
    if milliseconds < 999.5:
        return "less than 1 ms" if milliseconds < 1 else f"{milliseconds:.3g} ms"
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, hours, days = total // 60, total // 3_600, total // 86_400
    if minutes < 5:
        return _two_units(minutes, "min", total % 60, "s")
    if not hours:
        return f"{minutes} min"
    if not days:
        return _two_units(hours, "h", minutes % 60, "min")
    return _two_units(days, "d", hours % 24, "h")


def _two_units(whole: int, unit: str, rest: int, smaller: str) -> str:
    return f"{whole:,} {unit} {rest} {smaller}" if rest else f"{whole:,} {unit}"


def format_flops(flops: float) -> str:
    """370 TFLOP, or 0.5 petaFLOP/s-days from 0.01 of them on, as the pages write it."""
    days = flops / _PETAFLOP_DAY
    if days >= 0.01:
        return f"{days:,.0f} petaFLOP/s-days" if days >= 100 else f"{days:.3g} petaFLOP/s-days"
    units = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]
    while flops >= 999.5 and len(units) > 1:
        flops, units = flops / 1_000, units[1:]
    return f"{flops:.3g} {units[0]}"


def format_validation(checkpoint: Checkpoint) -> str:
    """2.810, `2.810 at step 90` if the checkpoint is of a later step, or – without a validation."""
    loss = format_decimal(checkpoint.validation_loss)
    if checkpoint.validation_loss is None or checkpoint.validation_step == checkpoint.step:
        return loss
    return f"{loss} at step {checkpoint.validation_step:,}"


def checkpoint_remark(checkpoint: Checkpoint) -> str:
    """Whether it is pinned or damaged."""
    return ", ".join((["pinned"] if checkpoint.pinned else []) + ([] if checkpoint.valid else ["damaged"]))


def describe_freed(freed: FreedSpace) -> str:
    """Space that a deletion freed, or would free."""
    verb = "Would free" if freed.dry_run else "Freed"
    return f"{verb} {format_bytes(freed.bytes)}: {plural(freed.checkpoints, 'checkpoint')}."


def format_or_dash(value: float | None, form: str) -> str:
    """``value`` in a format of Python's, in which a percent sign gets a space: 8.6 %."""
    return "–" if value is None else format(value, form).replace("%", " %")


def format_percent(fraction: float, digits: int = 0) -> str:
    """40 %, as the pages write it."""
    return format_or_dash(fraction, f".{digits}%")
