"""How `--set` parses its values; the commands themselves are tested against a live platform."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from trainwright.cli import app
from trainwright.commands.spec_files import read_object
from trainwright.commands.terminal import (
    TextTable,
    apply_set,
    format_decimal,
    format_duration,
    format_flops,
    format_or_dash,
    format_percent,
    format_rate,
    format_short,
    out,
    print_error,
    printable,
    table_of,
)
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.presets import PRESETS


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("optimizer.clip_norm=", {"optimizer": {"clip_norm": None}}),
        ("optimizer.clip_norm=null", {"optimizer": {"clip_norm": None}}),
        ("optimizer.clip_norm=0.5", {"optimizer": {"clip_norm": 0.5}}),
        ("data.tokenizer.vocabulary=", {"data": {"tokenizer": {"vocabulary": None}}}),
        ("precision.fp8=", {"precision": {"fp8": None}}),
        # stays text if the field takes no null, so that validation rejects it by name
        ("precision.fp8.skip_limit=", {"precision": {"fp8": {"skip_limit": ""}}}),
        ("name=", {"name": ""}),
        ("optimizer.clip=", {"optimizer": {"clip": ""}}),
        ("no.such.field=", {"no": {"such": {"field": ""}}}),
    ],
)
def test_an_empty_value_is_null_if_the_field_is_nullable(change: str, expected: dict[str, Any]) -> None:
    spec: dict[str, Any] = {}
    apply_set(spec, change)
    assert spec == expected


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (format_decimal(3.1239), "3.124"),
        (format_decimal(437.1234), "437.1"),
        (format_decimal(0.0123), "0.0123"),
        (format_decimal(0.00001234), "1.23e-5"),
        (format_decimal(0.0), "0"),
        (format_decimal(12_345.6), "12,346"),
        (format_decimal(136_558_821_376), "1.37e11"),
        (format_decimal(None), "–"),
        (format_rate(441_037), "441,000"),
        (format_rate(999_999), "1,000,000"),
        (format_rate(87.4), "87"),
        (format_rate(3.14), "3.1"),
        (format_rate(None), "–"),
        (format_short(124_439_808), "124 M"),
        (format_short(1_300_000_000), "1.3 B"),
        (format_short(257), "257"),
    ],
)
def test_numbers_are_written_as_on_the_pages(written: str, text: str) -> None:
    assert written == text


def test_presets_are_listed_with_their_parameters() -> None:
    shown = CliRunner().invoke(app, ["presets"]).stdout.splitlines()
    assert shown[0].split()[:2] == ["name", "parameters"]
    assert ["nano", "361", "k", "2"] in [line.split()[:4] for line in shown]
    assert ["tinyllama-1.1b", "1.1", "B", "22", "2,048", "32", "4"] in [line.split() for line in shown]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_printed_as_a_section_of_a_spec(name: str, tmp_path: Path) -> None:
    for option, suffix in ((), "yaml"), (("--json",), "json"):
        file = tmp_path / f"spec.{suffix}"
        file.write_text(CliRunner().invoke(app, ["presets", name, *option]).stdout)
        section = read_object(file)
        assert list(section) == ["model"]
        assert ModelSpec.model_validate(section["model"]) == PRESETS[name]


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    refused = CliRunner().invoke(app, ["presets", "llama3-8b"])
    assert refused.exit_code == 1
    assert (
        "There is no preset 'llama3-8b'. Did you mean 'llama-3-8b'? `trainwright presets` lists all "
        in refused.stderr
    )


@pytest.mark.parametrize(
    ("flops", "text"),
    [
        (0, "0 FLOP"),
        (999.7, "1 kFLOP"),
        (3.7e14, "370 TFLOP"),
        (8.63e17, "863 PFLOP"),
        (8.64e17, "0.01 petaFLOP/s-days"),
        (4.32e19, "0.5 petaFLOP/s-days"),
        (1.0627e23, "1,230 petaFLOP/s-days"),
    ],
)
def test_flops_are_written_as_on_the_pages(flops: float, text: str) -> None:
    assert format_flops(flops) == text


def test_text_from_a_model_cannot_control_the_terminal() -> None:
    assert printable("grün\tand\n中\x1b[2J\x07\r\x9b1m") == "grün\tand\n中\ufffd[2J\ufffd\ufffd\ufffd1m"


MARKED = ["Say [/INST] now", "[bold]pilot", "see [/data/a]", ":smile:"]


@pytest.mark.parametrize("text", MARKED)
def test_a_table_shows_what_people_wrote(text: str) -> None:
    shown = io.StringIO()
    for table in (table_of(text), TextTable("", text)):
        table.add_row(f"{text}!", f"{text}?")
        Console(file=shown, width=200).print(table)
    for part in (text, f"{text}!", f"{text}?"):
        assert shown.getvalue().count(part) >= 2, shown.getvalue()


def test_a_table_replaces_control_characters_and_keeps_styles() -> None:
    table = TextTable("a\x1b[2J", "")
    table.add_row("\x1b]0;title\x07", Text("done", style="bold"))
    shown = io.StringIO()
    Console(file=shown, width=200, force_terminal=True, color_system="standard").print(table)
    assert "a\ufffd[2J" in shown.getvalue() and "\ufffd]0;title\ufffd" in shown.getvalue()
    assert "\x1b[1mdone" in shown.getvalue()


@pytest.mark.parametrize("text", MARKED)
def test_lines_and_errors_show_what_people_wrote(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    out.print(text)
    print_error(text)
    assert capsys.readouterr() == (f"{text}\n", f"{text}\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1e-9, "less than 1 ms"),
        (0.0043, "4.3 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (3.21, "3.2 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (130, "2 min 10 s"),
        (3_599, "59 min"),
        (5_400, "1 h 30 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_are_written_as_on_the_pages(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_percent_sign_has_a_space_before_it() -> None:
    assert (format_percent(0.4), format_or_dash(0.0861, ".1%"), format_or_dash(2.5, ".2f")) == (
        "40 %",
        "8.6 %",
        "2.50",
    )
