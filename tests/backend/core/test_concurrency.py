"""Limits of concurrent and waiting requests. `nodes/test_request_floods.py` tests them with floods."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from trainwright_backend.core.concurrency import ConcurrencyLimit
from trainwright_backend.core.errors import Busy


def test_a_limit_refuses_when_too_many_wait_and_shares_slots_among_addresses() -> None:
    async def fill() -> None:
        limit = ConcurrencyLimit(running=1, waiting=3, waiting_per_address=2, refusal=("busy", "Busy."))
        served: list[str] = []

        async def request(address: str) -> None:
            async with limit.place(address):
                served.append(address)

        async with AsyncExitStack() as first:
            await first.enter_async_context(limit.place("a"))
            waiting = [asyncio.create_task(request("a")) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(Busy):  # two of `a` wait
                await asyncio.wait_for(request("a"), 5)
            waiting.append(asyncio.create_task(request("b")))
            await asyncio.sleep(0)
            with pytest.raises(Busy):  # three of all wait
                await asyncio.wait_for(request("c"), 5)
            waiting[0].cancel()  # a client that disconnects frees its slot
            await asyncio.sleep(0)
            waiting.append(asyncio.create_task(request("c")))
            await asyncio.sleep(0)
            assert served == []
        await asyncio.gather(*waiting[1:])
        assert served == ["a", "b", "c"]
        await request("a")

    asyncio.run(fill())
