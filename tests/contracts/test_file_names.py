"""The rule for file names that nodes choose and the platform stores."""

import pytest

from trainwright.contracts.file_names import is_plain_name


@pytest.mark.parametrize("name", ["rank-0.log", "_part.bin", "a" * 200])
def test_a_plain_name_is_taken(name: str) -> None:
    assert is_plain_name(name)


@pytest.mark.parametrize("name", ["", ".hidden", "..", "a/b", "a\\b", "a\n", "a b", "ä.log", "a" * 201])
def test_what_could_lead_elsewhere_is_not(name: str) -> None:
    assert not is_plain_name(name)
