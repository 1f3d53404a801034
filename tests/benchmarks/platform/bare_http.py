"""A minimal server: the rate at which uvicorn alone receives and sends bytes on this machine.

PUT /drop   read and dropped
PUT /file   written to one file, neither hashed nor synced
GET /file   that file, sent by Starlette

python -m tests.benchmarks.platform.bare_http FD FILE     serves the listening socket
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

from trainwright_backend.local.platform import bind_socket, terminate


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
    """Run the server for the block; yields its address. The socket already listens, so there is no wait."""
    listener = bind_socket("127.0.0.1", 0)
    descriptor = listener.fileno()
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.platform.bare_http", str(descriptor), str(file)],
        pass_fds=(descriptor,),
    )
    port = listener.getsockname()[1]
    listener.close()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        terminate(server)


def main(descriptor: int, file: Path) -> None:
    config = uvicorn.Config(application(file), log_config=None, access_log=False)
    uvicorn.Server(config).run([socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
