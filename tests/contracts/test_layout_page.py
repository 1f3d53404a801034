"""The page on parallelism tells every rule, in the words in which it is refused."""

from pathlib import Path

import pytest

from trainwright.contracts.layout_rules import COMBINATIONS
from trainwright.layout_page import with_table


def test_the_page_has_the_rules_of_now(repository: Path) -> None:
    page = (repository / "docs" / "parallelism.md").read_text()
    assert with_table(page) == page, "run: python -m trainwright.layout_page docs/parallelism.md"
    assert all(rule.reason in page for rule in COMBINATIONS)


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the table"):
        with_table("# Parallelism\n")
