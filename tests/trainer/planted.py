"""Faults that tests plant: a collective left out, or its result put elsewhere, where one function asks for it and nowhere else.

A fault that is never reached, because the function has another name by now or asks no more, is seen by nobody, and so fails the
test that wants it to be seen.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from torch import Tensor

DONE = SimpleNamespace(wait=lambda: None)
"""Of a collective that was never begun."""


def planted(
    owner: type, method: str, wrong: Callable[..., Any], within: str = ""
) -> AbstractContextManager[object]:
    """Let calls of ``owner.method`` be calls of ``wrong``.

    Args:
        within: qualified name of a function; only calls that it makes, by itself or by others, are concerned.
    """
    right = getattr(owner, method)

    def chosen(*given: Any, **named: Any) -> Any:
        concerned = not within or _is_within(within)
        return wrong(*given, **named) if concerned else right(*given, **named)

    return patch.object(owner, method, chosen)


def own(axis: Any, tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    """In place of a sum or maximum: what this rank has."""
    return tensor


def _is_within(function: str) -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_qualname == function:
            return True
        frame = frame.f_back
    return False
