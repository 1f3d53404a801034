"""Generates the table of choices that exclude each other from the rules that refuse them.

``python -m trainwright.reference.layouts docs/parallelism.md`` writes it between the marks of the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from trainwright.contracts.layout_rules import REFUSED_COMBINATIONS

BEGIN, END = "<!-- combinations: made by trainwright.reference.layouts -->", "<!-- end of combinations -->"


def combinations_table() -> str:
    """All excluded combinations, with the field of the error and the reason."""
    rows = [
        f"| {combination.choice} | `{combination.field}` | {combination.reason} |"
        for combination in REFUSED_COMBINATIONS
    ]
    return "\n".join(
        ["| refused | field | why, and what to do instead: the value … |", "|---|---|---|", *rows]
    )


def with_table(page: str) -> str:
    """``page`` with the current table between its marks.

    Raises:
        ValueError: the marks are missing.
    """
    marked = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    if not marked.search(page):
        raise ValueError(f"the page has no marks for the table: add {BEGIN} and {END}")
    return marked.sub(lambda _: f"{BEGIN}\n{combinations_table()}\n{END}", page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
