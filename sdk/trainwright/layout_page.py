"""The table of choices that exclude each other, made from the rules that refuse them.

``python -m trainwright.layout_page docs/parallelism.md`` writes it between the marks of the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from trainwright.contracts.layout_rules import COMBINATIONS

BEGIN, END = "<!-- combinations: made by trainwright.layout_page -->", "<!-- end of combinations -->"


def combinations_table() -> str:
    """Every pair of choices that is refused, with the field that is blamed and the reason."""
    rows = [f"| {one.choice} | `{one.field}` | {one.reason} |" for one in COMBINATIONS]
    return "\n".join(["| refused | field | why, and what instead: the value … |", "|---|---|---|", *rows])


def with_table(page: str) -> str:
    """``page`` with the table of now between its marks.

    Raises:
        ValueError: the marks are not there.
    """
    marked = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    if not marked.search(page):
        raise ValueError(f"the page has no place for the table: put {BEGIN} and {END} into it")
    return marked.sub(lambda _: f"{BEGIN}\n{combinations_table()}\n{END}", page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
