"""The counterpart of `async_blocking` for the synchronous client, which may block."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def call_blocking(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function that reads or writes files."""
    return function(*args, **kwargs)


def iterate_blocking(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks that are read from a file."""
    return blocks
