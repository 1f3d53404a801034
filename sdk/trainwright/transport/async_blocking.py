"""Work that blocks, in threads, so that the asynchronous client stays responsive. `blocking` has the same for the synchronous one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def call_blocking(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function that reads or writes files."""
    return await asyncio.to_thread(function, *args, **kwargs)


async def iterate_blocking(blocks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Blocks that are read from a file."""
    while (block := await asyncio.to_thread(next, blocks, None)) is not None:
        yield block
