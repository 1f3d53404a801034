"""Lists of names in sentences stay short."""

import pytest

from trainwright.contracts.listing import listed


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, ""), (1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2 and 1 more"), (2_003, "0, 1, 2 and 2,000 more")],
)
def test_a_list_names_the_first_items_and_how_many_more_there_are(count: int, text: str) -> None:
    assert listed(range(count), 3) == text
