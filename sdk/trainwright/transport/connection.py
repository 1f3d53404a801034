# Generated from transport/async_connection.py by infra/sync_client.py. Change that file.
"""The connection of the client to its server: requests, retries, event streams, verified downloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import httpx

from trainwright.transport.address import checked_address
from trainwright.transport.blocking import call_blocking, sleep
from trainwright.transport.errors import ApiError
from trainwright.transport.partial_file import PartialFile
from trainwright.transport.responses import (
    API,
    RETRY_SECONDS,
    Model,
    RetryTimer,
    checked,
    is_web_page,
    parsed,
    parsed_list,
    parsed_page,
    pause_seconds,
)
from trainwright.transport.sse import Message, MessageParser
from trainwright.transport.tls import is_untrusted, tls_context

BLOCK_BYTES = 1 << 20
PAGE_ITEMS = 100
LONG_RESPONSE_SECONDS = 300.0
"""Timeout of slow requests: at the end of a large upload the server may read all of it again."""


class Connection:
    """Typed HTTP to one server.

    Args:
        server: address, such as ``http://127.0.0.1:8000``.
        key: API key (``tw_…``). Without one, only calls that need no key work until a link is used.

    Raises:
        ValueError: ``server`` is not an address of HTTP.
    """

    def __init__(self, server: str, key: str | None = None, *, timeout_seconds: float = 30.0) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.server = checked_address(server)
        self._http = httpx.Client(
            base_url=self.server, headers=headers, timeout=timeout_seconds, verify=tls_context()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, model: type[Model], params: Mapping[str, Any] | None = None) -> Model:
        response = self.fetch(path, params)
        return parsed(response, model)

    def get_patiently(self, path: str, model: type[Model], params: Mapping[str, Any] | None = None) -> Model:
        """As `get`, but wait for a server that is away for up to `UNREACHABLE_SECONDS`, as during its upgrade."""
        timer = RetryTimer()
        while True:
            try:
                return self.get(path, model, params)
            except (httpx.TransportError, ApiError) as error:
                sleep(timer.pause_seconds(error))

    def get_list(self, path: str, item: type[Model], params: Mapping[str, Any] | None = None) -> list[Model]:
        response = self.fetch(path, params)
        return parsed_list(response, item)

    def get_pages(self, path: str, item: type[Model], params: Mapping[str, Any] | None = None) -> list[Model]:
        """All items of a list with pages. Servers of version 0.1 answer with an array for some of them."""
        found: list[Model] = []
        asked: dict[str, Any] = {"limit": PAGE_ITEMS} | dict(params or {})
        while True:
            items, cursor = parsed_page(self.fetch(path, asked), item)
            found += items
            if cursor is None:
                return found
            asked["cursor"] = cursor

    def fetch(self, path: str, params: Mapping[str, Any] | None = None) -> httpx.Response:
        """GET, retried if the connection breaks or the server is busy."""
        return self._retry("GET", path, params=params)

    def post(
        self, path: str, model: type[Model], *, json: Any = None, params: Mapping[str, Any] | None = None
    ) -> Model:
        response = self._wait_while_busy("POST", path, json=json, params=params)
        return parsed(response, model)

    def post_only(self, path: str, *, json: Any) -> None:
        """POST without a response body."""
        self._wait_while_busy("POST", path, json=json)

    def post_idempotent(
        self, path: str, model: type[Model], *, json: Any = None, params: Mapping[str, Any] | None = None
    ) -> Model:
        """POST, retried if the response is lost: repeating is harmless, or its idempotency key shows that it is a repetition."""
        headers = {"Idempotency-Key": str(uuid4())}
        response = self._retry("POST", path, json=json, params=params, headers=headers)
        return parsed(response, model)

    def put(self, path: str, model: type[Model], *, json: Any) -> Model:
        response = self._retry("PUT", path, json=json)
        return parsed(response, model)

    def patch(self, path: str, model: type[Model], *, json: Any) -> Model:
        response = self._retry("PATCH", path, json=json)
        return parsed(response, model)

    def call(
        self, method: str, path: str, headers: Mapping[str, str], content: Iterator[bytes] | None = None
    ) -> httpx.Response:
        """One request with headers and a body of bytes, without retries. The response may take a few minutes."""
        timeout = httpx.Timeout(30.0, read=LONG_RESPONSE_SECONDS)
        response = self._http.request(method, API + path, headers=headers, content=content, timeout=timeout)
        return checked(response)

    def repeat(self, method: str, path: str, headers: Mapping[str, str]) -> httpx.Response:
        """Like `call`, retried if the connection breaks or the server is busy."""
        return self._retry(method, path, headers=headers)

    def post_for_list(self, path: str, item: type[Model], *, json: Any) -> list[Model]:
        """POST with a list as response."""
        response = self._wait_while_busy("POST", path, json=json)
        return parsed_list(response, item)

    def delete(self, path: str) -> None:
        self._wait_while_busy("DELETE", path)

    def delete_for(self, path: str, model: type[Model], params: Mapping[str, Any]) -> Model:
        """DELETE with a response body."""
        response = self._wait_while_busy("DELETE", path, params=params)
        return parsed(response, model)

    def stream(self, path: str, last_id: str | None) -> Iterator[Message]:
        """Server-sent events, until the server closes the connection."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        # The server sends a comment every 15 s: after longer silence the connection is dead.
        timeout = httpx.Timeout(30.0, read=45.0)
        parser = MessageParser()
        with self._http.stream("GET", API + path, headers=headers, timeout=timeout) as response:
            if response.is_error:
                response.read()
            for line in checked(response).iter_lines():
                message = parser.add(line)
                if message is not None:
                    yield message

    def save(self, url: str, partial: PartialFile, on_bytes: Callable[[int], None]) -> None:
        """Download what ``partial`` lacks of ``url`` or what it redirects to. The API key is not sent to another host.

        Raises:
            httpx.TransportError: the connection broke. ``partial`` has what arrived before.
            ApiError: the server refused. If it does not have the missing part, ``partial`` is empty.
        """
        headers = {"Accept-Encoding": "identity"}
        if partial.received:
            headers["Range"] = f"bytes={partial.received}-"
        with self._http.stream("GET", url, headers=headers, follow_redirects=True) as response:
            if response.is_error:
                response.read()
            starts_over = response.status_code in (
                httpx.codes.OK,
                httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE,
            )
            if starts_over and not is_web_page(response):
                on_bytes(-partial.received)
                call_blocking(partial.restart)
            # In the pieces in which they arrive, so that none is lost if the connection breaks.
            for block in checked(response).iter_bytes():
                call_blocking(partial.add, block)
                on_bytes(len(block))
        if not partial.is_complete:
            missing = partial.size_bytes - partial.received
            raise httpx.RemoteProtocolError(f"{partial.target.name}: {missing} bytes are missing")

    def save_as(self, path: str, params: Mapping[str, Any], target: Path) -> None:
        """GET what the server computes for this request, and then move it to ``target``."""
        partial = target.with_name(f".{target.name}.{uuid4().hex}.part")
        try:
            for wait_seconds in (*RETRY_SECONDS, None):
                pause = self._write(path, params, partial, wait_seconds)
                if pause is None:
                    break
                sleep(pause)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def _write(
        self, path: str, params: Mapping[str, Any], file: Path, wait_seconds: float | None
    ) -> float | None:
        """GET into ``file``. If that fails but may be repeated after ``wait_seconds``, the delay until then; otherwise None."""
        timeout = httpx.Timeout(30.0, read=LONG_RESPONSE_SECONDS)
        try:
            with self._http.stream("GET", API + path, params=params, timeout=timeout) as response:
                if response.is_error:
                    response.read()
                pause = (
                    None
                    if wait_seconds is None
                    else pause_seconds(response, wait_seconds, is_idempotent=True)
                )
                if pause is not None:
                    return pause
                with file.open("wb") as out:
                    for block in checked(response).iter_bytes(BLOCK_BYTES):
                        call_blocking(out.write, block)
        except httpx.TransportError as error:
            if wait_seconds is None or is_untrusted(error):
                raise
            return wait_seconds
        return None

    def _retry(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request that may be repeated, also if the connection breaks or the server is busy."""
        return self._repeated(method, path, request, is_idempotent=True)

    def _wait_while_busy(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Repeat a request only if the server refused it because it is busy: then it has changed nothing."""
        return self._repeated(method, path, request, is_idempotent=False)

    def _repeated(
        self, method: str, path: str, request: Mapping[str, Any], *, is_idempotent: bool
    ) -> httpx.Response:
        for wait_seconds in RETRY_SECONDS:
            try:
                response = self._http.request(method, API + path, **request)
            except httpx.TransportError as error:
                if not is_idempotent or is_untrusted(error):
                    raise
                sleep(wait_seconds)
                continue
            pause = pause_seconds(response, wait_seconds, is_idempotent=is_idempotent)
            if pause is None:
                return checked(response)
            sleep(pause)
        return checked(self._http.request(method, API + path, **request))
