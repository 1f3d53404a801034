"""Server processes that can be killed, and a proxy that cuts connections, for tests of interrupted uploads."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from types import TracebackType
from typing import Any, Self

import uvicorn

from tests.fork_server import FORKED
from trainwright_backend.core.settings import Settings
from trainwright_backend.main import create_app
from trainwright_backend.uploads import receiver, request_body

SMALL_BLOCK = 32 << 10
SMALL_SAVE = 128 << 10
"""Instead of 1 and 64 MiB, so that small uploads behave like large ones."""


def serve(settings: dict[str, Any], listening: socket.socket, idle_seconds: float) -> None:
    """The entire application in its own process."""
    request_body.IDLE_SECONDS = idle_seconds
    request_body.BLOCK_BYTES = SMALL_BLOCK
    receiver.SAVE_BYTES = SMALL_SAVE
    app = create_app(Settings(**settings))
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on")
    uvicorn.Server(config).run([listening])


class Server:
    """A server process on a port that outlives it: while it is dead, connections wait."""

    def __init__(self, settings: Settings, idle_seconds: float = 60.0) -> None:
        self._idle_seconds = idle_seconds
        self._settings = settings.model_dump() | {"log_level": "CRITICAL"}
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listening.getsockname()[1]
        self._process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._listening.close()

    def kill(self) -> None:
        """Send SIGKILL, and start another process immediately."""
        self._process.kill()
        self._process.join()
        self._process = self._start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def _start(self) -> ForkServerProcess:
        process = FORKED.Process(
            target=serve, args=(self._settings, self._listening, self._idle_seconds), daemon=True
        )
        process.start()
        return process


class Proxy:
    """Forwards connections to ``port``, and runs an action after a number of uploaded bytes."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._left: int | None = None
        self._action: Callable[[], object] = lambda: None
        self.cuts = 0
        self.cut_at = 0.0
        """The time of the last cut, in seconds of ``time.monotonic``."""

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut_after(self, count: int, action: Callable[[], object] = lambda: None) -> None:
        """Cut the connection at the ``count``-th byte from now, after ``action``."""
        self._left, self._action = count, action

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        down = asyncio.ensure_future(self._forward(up_reader, writer))
        try:
            while data := await reader.read(16 << 10):
                if self._left is not None and len(data) >= self._left:
                    up_writer.write(data[: self._left])
                    await up_writer.drain()
                    self._left = None
                    self.cuts += 1
                    self.cut_at = time.monotonic()
                    await asyncio.get_running_loop().run_in_executor(None, self._action)
                    break
                if self._left is not None:
                    self._left -= len(data)
                up_writer.write(data)
                await up_writer.drain()
        except OSError:
            pass  # when one side closes, the other is closed too
        finally:
            for end in (writer, up_writer):
                end.transport.abort()
            down.cancel()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(16 << 10):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()
