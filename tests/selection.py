"""Which cases of a parametrized test belong to ``make test``, and which are left to a slower target."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def partly_slow(cases: Iterable[Any], in_make_test: Collection[Any], target: str = "layouts") -> list[Any]:
    """Parameters for ``pytest.mark.parametrize``; cases outside ``in_make_test`` are marked slow.

    Args:
        cases: one value each, or a tuple of values where the test takes several.
        in_make_test: some of ``cases``; a case that does not exist is an error, so that a renamed case is detected.
        target: the make target that runs the other cases.
    """
    found = list(cases)
    unknown = [case for case in in_make_test if case not in found]
    assert not unknown, f"no such case: {unknown}"
    slow = pytest.mark.slow(target=target)
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=() if case in in_make_test else slow
        )
        for case in found
    ]
