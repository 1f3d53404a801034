"""The rule for file names that nodes choose and the platform stores."""

import pytest

from trainwright.contracts.file_names import is_plain_name


@pytest.mark.parametrize("name", ["rank-0.log", "_part.bin", "a" * 200])
def test_a_plain_name_is_accepted(name: str) -> None:
    assert is_plain_name(name)


@pytest.mark.parametrize("name", ["", ".hidden", "..", "a/b", "a\\b", "a\n", "a b", "ä.log", "a" * 201])
def test_a_name_that_could_leave_the_folder_is_refused(name: str) -> None:
    assert not is_plain_name(name)
