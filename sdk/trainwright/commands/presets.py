"""The named model sizes, and the section `model` of each for a spec."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from rich.table import Column

from trainwright.commands.terminal import AsJson, TextTable, format_short, out, print_error
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.presets import PRESETS
from trainwright.planner.preset_sizes import preset_parameters

Name = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Print the section `model` of this one, in YAML.")
]


def presets(name: Name = None, as_json: AsJson = False) -> None:
    """List the named model sizes, or print one as the section `model` of a spec."""
    if name is not None:
        _print_section(name, as_json)
    elif as_json:
        typer.echo(
            json.dumps({each: model.model_dump(mode="json") for each, model in PRESETS.items()}, indent=2)
        )
    else:
        out.print(_table())


def _table() -> TextTable:
    sizes = ("parameters", "layers", "width", "heads", "kv heads")
    table = TextTable("name", *(Column(size, justify="right") for size in sizes))
    parameters = preset_parameters()
    for name, model in PRESETS.items():
        shape = (model.layers, model.width, model.heads, model.key_value_heads)
        table.add_row(name, format_short(parameters[name]), *(f"{size:,}" for size in shape))
    return table


def _print_section(name: str, as_json: bool) -> None:
    if name not in PRESETS:
        near = get_close_matches(name.lower(), PRESETS, n=1)
        suggestion = f" Did you mean {near[0]!r}?" if near else ""
        print_error(
            f"There is no preset {name!r}.{suggestion} `trainwright presets` lists all {len(PRESETS)}."
        )
        raise typer.Exit(1)
    section = {"model": _changed_fields(PRESETS[name])}
    if as_json:
        typer.echo(json.dumps(section, indent=2))
        return
    typer.echo("# Fields that are left out keep their defaults.")
    for line in _yaml_lines(section):
        typer.echo(line)


def _changed_fields(model: ModelSpec) -> dict[str, Any]:
    """The fields in which ``model`` differs from the defaults."""
    defaults = ModelSpec().model_dump(mode="json")
    return {
        field: value for field, value in model.model_dump(mode="json").items() if value != defaults[field]
    }


def _yaml_lines(fields: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Lines of YAML. Texts need no quotation marks: they are names, such as `geglu`."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from _yaml_lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {value if isinstance(value, str) else json.dumps(value)}"
