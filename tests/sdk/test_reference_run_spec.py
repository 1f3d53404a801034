"""The reference page is generated from the contracts."""

from pathlib import Path

from trainwright.contracts.precision_spec import FP8Spec
from trainwright.contracts.run_spec import RunSpec
from trainwright.reference.run_spec import markdown

PAGE = Path(__file__).parents[2] / "docs" / "spec.md"


def test_the_committed_page_is_up_to_date() -> None:
    assert PAGE.read_text() == markdown(), "run `make openapi`: docs/spec.md is stale"


def test_every_section_of_the_spec_is_on_the_page() -> None:
    page = markdown()
    for name in RunSpec.model_fields:
        assert f"## {name}\n" in page or f"| `{name}` |" in page


def test_an_optional_section_is_described_too() -> None:
    page = markdown()
    for name in FP8Spec.model_fields:
        assert f"| `precision.fp8.{name}` |" in page


def test_every_row_of_a_table_is_one_line() -> None:
    rows = [line for line in markdown().splitlines() if line.startswith("| `")]
    assert rows
    assert [row for row in rows if not row.endswith(" |")] == []
