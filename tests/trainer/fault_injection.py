"""Faults injected by tests: a collective is left out or its result misrouted, but only in calls from a given
function.

A fault that is never reached, because the function was renamed or no longer calls the collective, stays
undetected and so fails the test that expects it to be detected.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from torch import Tensor

DONE = SimpleNamespace(wait=lambda: None)
"""Handle of a collective that was never started."""


def inject_fault(
    owner: type, method: str, wrong: Callable[..., Any], within: str = ""
) -> AbstractContextManager[object]:
    """Replace calls of ``owner.method`` by calls of ``wrong``.

    Args:
        within: qualified name of a function; only calls made by it, directly or indirectly, are replaced.
    """
    right = getattr(owner, method)

    def chosen(*given: Any, **named: Any) -> Any:
        concerned = not within or _is_within(within)
        return wrong(*given, **named) if concerned else right(*given, **named)

    return patch.object(owner, method, chosen)


def own(axis: Any, tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    """Instead of a sum or maximum, return this rank's own value."""
    return tensor


def _is_within(function: str) -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_qualname == function:
            return True
        frame = frame.f_back
    return False
