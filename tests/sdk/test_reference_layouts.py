"""The page on parallelism lists every rule, in the words of its error message."""

from pathlib import Path

import pytest

from trainwright.contracts.layout_rules import REFUSED_COMBINATIONS
from trainwright.reference.layouts import with_table


def test_the_page_has_the_current_rules(repository: Path) -> None:
    page = (repository / "docs" / "parallelism.md").read_text()
    assert with_table(page) == page, "run: python -m trainwright.reference.layouts docs/parallelism.md"
    assert all(rule.reason in page for rule in REFUSED_COMBINATIONS)


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no marks"):
        with_table("# Parallelism\n")
