"""A server that does as little as one can: what uvicorn alone reaches here with bytes that come and go.

PUT /drop   read and forgotten
PUT /file   written to one file, neither hashed nor synced
GET /file   that file, as Starlette sends files

python -m tests.benchmarks.bare_http FD FILE     serves the listening socket
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from trainwright_backend.local import end, listen


def application(file: Path) -> Starlette:
    async def drop(request: Request) -> Response:
        async for _ in request.stream():
            pass
        return Response()

    async def write(request: Request) -> Response:
        with file.open("wb") as out:
            async for data in request.stream():
                out.write(data)
        return Response()

    async def send(request: Request) -> Response:
        return FileResponse(file)

    return Starlette(
        routes=[
            Route("/drop", drop, methods=["PUT"]),
            Route("/file", write, methods=["PUT"]),
            Route("/file", send),
        ]
    )


@contextmanager
def bare_server(file: Path) -> Iterator[str]:
    """Its address; it ends with the block. The socket listens already, so nobody has to wait for it."""
    listener = listen("127.0.0.1", 0)
    descriptor = listener.fileno()
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.bare_http", str(descriptor), str(file)],
        pass_fds=(descriptor,),
    )
    port = listener.getsockname()[1]
    listener.close()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        end(server)


def main(descriptor: int, file: Path) -> None:
    config = uvicorn.Config(application(file), log_config=None, access_log=False)
    uvicorn.Server(config).run([socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
