"""The reference page of end codes is generated from the contracts."""

import re
from pathlib import Path

from trainwright.contracts.end_codes import RETRIES, EndClass, EndCode, end_class
from trainwright.reference.end_codes import ADVICE, RETRIED, RUN_CODES, markdown
from trainwright_backend.attempts.retry_policy import FAILS_AS

PAGE = Path(__file__).parents[2] / "docs" / "end-codes.md"


def rows_by_code() -> dict[str, list[str]]:
    """The cells after the code of each row."""
    rows = [line.strip("| ").split(" | ") for line in markdown().splitlines() if line.startswith("| `")]
    assert len(rows) == len({row[0] for row in rows})
    return {row[0].strip("`"): row[1:] for row in rows}


def test_the_committed_page_is_up_to_date() -> None:
    assert PAGE.read_text() == markdown(), "run `make openapi`: docs/end-codes.md is stale"


def test_every_code_has_one_row_with_three_cells() -> None:
    rows = rows_by_code()
    assert rows.keys() == set(EndCode)
    assert {len(cells) for cells in rows.values()} == {3}


def test_the_page_says_after_how_many_ends_a_run_fails_and_with_which_code() -> None:
    rows = rows_by_code()
    for code in set(EndCode) - set(RUN_CODES):
        numbers = [int(number) for number in re.findall(r"(\d+)(?:nd|rd|th) in a row", rows[code][1])]
        assert numbers == ([RETRIES[end_class(code)]] if end_class(code) in RETRIES else []), code
    assert RETRIED.keys() == set(EndClass)
    for kind, code in FAILS_AS.items():
        assert f"`{code}`" in RETRIED[kind]


def test_every_failure_has_advice() -> None:
    assert [code for code, cells in rows_by_code().items() if cells[2] == "–"] == ["finished", "cancelled"]
    assert "" not in ADVICE.values()
