"""Receiving an object through a signed upload link."""

from collections.abc import AsyncIterator
from contextlib import ExitStack

from anyio import CancelScope
from fastapi.concurrency import run_in_threadpool

from trainwright.contracts.base import Problem
from trainwright_backend.core.errors import Invalid
from trainwright_backend.core.object_store import BUFFER_BYTES, ObjectStore, ObjectWriter, StoredObject


async def receive_object(store: ObjectStore, signed: str, stream: AsyncIterator[bytes]) -> None:
    """Store the bytes of ``stream`` as the object that an upload link names.

    Raises:
        Forbidden: the link was not made here, or has expired.
        Invalid: the bytes do not have the announced size and digest; nothing is stored.
    """
    grant = store.verify(signed, "PUT")
    assert grant.size_bytes is not None and grant.digest is not None
    expected = StoredObject(grant.size_bytes, grant.digest)
    opened = ExitStack()
    writer = await run_in_threadpool(opened.enter_context, store.open_write(grant.key, expected))
    try:
        await _write_expected(writer, expected, stream)
    finally:
        with CancelScope(shield=True):
            await run_in_threadpool(opened.close)


async def _write_expected(writer: ObjectWriter, expected: StoredObject, stream: AsyncIterator[bytes]) -> None:
    async for data in in_blocks(stream):
        if writer.bytes + len(data) > expected.bytes:
            raise _mismatch("bytes", f"More than the announced {expected.bytes} bytes arrived.")
        await run_in_threadpool(writer.write, data)
    if writer.bytes != expected.bytes:
        raise _mismatch("bytes", f"{writer.bytes} bytes arrived instead of the announced {expected.bytes}.")
    if writer.digest != expected.digest:
        raise _mismatch(
            "digest", f"The bytes have SHA-256 {writer.digest} instead of the announced {expected.digest}."
        )
    await run_in_threadpool(writer.finish)


async def in_blocks(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join the bytes of ``stream`` into blocks that are worth a thread switch."""
    block = bytearray()
    async for data in stream:
        block += data
        if len(block) >= BUFFER_BYTES:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def _mismatch(field: str, message: str) -> Invalid:
    return Invalid([Problem(field=field, message=f"{message} Nothing was stored: send the file again.")])
