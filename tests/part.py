"""``--part 2/4``: every fourth of the selected tests, from the second on, so that a long target can be run over several days."""

import re

import pytest


class Part:
    """A plugin that selects every n-th test, from the k-th on, after all other selections."""

    def __init__(self, text: str) -> None:
        """``text``: k/n.

        Raises:
            UsageError: it is not one of the parts 1/n to n/n.
        """
        match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
        if match is None or int(match[1]) > int(match[2]):
            raise pytest.UsageError(f"--part {text}: write k/n with k from 1 to n, such as 2/4")
        self._number, self._parts = int(match[1]), int(match[2])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = items[self._number - 1 :: self._parts]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen
