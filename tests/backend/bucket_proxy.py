"""A proxy between the platform and a bucket, which delays, changes or refuses requests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx

Intervention = Callable[[str, str, bytearray], int | None]
"""Called with the method, path and body of a request before it is passed on. It may wait, change the body, or return
the status to answer with instead."""


@contextmanager
def bucket_proxy(target: str, intervene: Intervention) -> Iterator[str]:
    """A proxy to the store at ``target``; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def forward(self) -> None:
            body = bytearray(self.rfile.read(int(self.headers.get("content-length", 0))))
            status = intervene(self.command, self.path, body)
            if status is not None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            dropped = ("host", "content-length")
            headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            response = httpx.request(self.command, target + self.path, content=bytes(body), headers=headers)
            self.send_response(response.status_code)
            for name, value in response.headers.items():
                if name.lower() not in ("content-length", "connection", "content-encoding"):
                    self.send_header(name, value)
            length = response.headers["content-length"] if self.command == "HEAD" else len(response.content)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(response.content)

        def do_GET(self) -> None:
            self.forward()

        def do_PUT(self) -> None:
            self.forward()

        def do_POST(self) -> None:
            self.forward()

        def do_DELETE(self) -> None:
            self.forward()

        def do_HEAD(self) -> None:
            self.forward()

        def log_message(self, *_: object) -> None:
            """Quietly."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
