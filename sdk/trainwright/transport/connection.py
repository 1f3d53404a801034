"""The connection of the client to its server: requests, retries, event streams, verified downloads, errors."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

import httpx
from pydantic import BaseModel

from trainwright.contracts.api.envelopes import ErrorBody
from trainwright.contracts.base import Problem
from trainwright.transport.sse import Message, parse_messages

Model = TypeVar("Model", bound=BaseModel)

API = "/api/v1"
BLOCK_BYTES = 1 << 20
PAGE_ITEMS = 100
LONG_RESPONSE_SECONDS = 300.0
"""Timeout of slow requests: at the end of a large upload the server may read all of it again."""

RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Delays between retries, unless the server asks for longer ones (Retry-After)."""

BUSY = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)
"""The server refused a request and changed nothing. The same request succeeds later."""

LONGEST_WAIT_SECONDS = 30.0
"""If the server asks for a longer delay, the error is raised at once: the caller can do something else."""


class ApiError(Exception):
    """An error response. ``code`` is stable, ``detail`` says what to do, ``problems`` name fields."""

    def __init__(self, body: ErrorBody) -> None:
        lines = [
            body.detail,
            *(f"  {p.field}: {p.message}" for p in body.errors if p.message not in body.detail),
        ]
        super().__init__("\n".join(lines))
        self.status = body.status
        self.code = body.code
        self.detail = body.detail
        self.problems: Sequence[Problem] = body.errors
        self.request_id = body.request_id


class DigestMismatchError(Exception):
    """A file does not have the expected digest."""


class Connection:
    """Typed HTTP to one server.

    Args:
        server: address, such as ``http://127.0.0.1:8000``.
        key: API key (``tw_…``). Without one, only calls that need no key work until a link is used.
    """

    def __init__(self, server: str, key: str | None = None, *, timeout_seconds: float = 30.0) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.server = server.rstrip("/")
        self._http = httpx.Client(base_url=self.server, headers=headers, timeout=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, model: type[Model], params: Mapping[str, Any] | None = None) -> Model:
        return model.model_validate_json(self.fetch(path, params).content)

    def get_list(self, path: str, item: type[Model], params: Mapping[str, Any] | None = None) -> list[Model]:
        return [item.model_validate(entry) for entry in self.fetch(path, params).json()]

    def get_pages(self, path: str, item: type[Model], params: Mapping[str, Any] | None = None) -> list[Model]:
        """All items of a list with pages. Servers of version 0.1 answer with an array for some of them."""
        found: list[Model] = []
        asked: dict[str, Any] = {"limit": PAGE_ITEMS} | dict(params or {})
        while True:
            answer = self.fetch(path, asked).json()
            entries = answer if isinstance(answer, list) else answer["items"]
            found += [item.model_validate(entry) for entry in entries]
            cursor = None if isinstance(answer, list) else answer["next_cursor"]
            if cursor is None:
                return found
            asked["cursor"] = cursor

    def fetch(self, path: str, params: Mapping[str, Any] | None = None) -> httpx.Response:
        """GET, retried if the connection breaks or the server is busy."""
        return self._retry(lambda: self._http.get(API + path, params=params))

    def post(
        self, path: str, model: type[Model], *, json: Any = None, params: Mapping[str, Any] | None = None
    ) -> Model:
        response = self._wait_while_busy(lambda: self._http.post(API + path, json=json, params=params))
        return model.model_validate_json(response.content)

    def post_only(self, path: str, *, json: Any) -> None:
        """POST without a response body."""
        self._wait_while_busy(lambda: self._http.post(API + path, json=json))

    def post_repeatable(self, path: str, model: type[Model], *, json: Any) -> Model:
        """POST under an idempotency key, retried if the response is lost."""
        headers = {"Idempotency-Key": str(uuid4())}
        response = self._retry(lambda: self._http.post(API + path, json=json, headers=headers))
        return model.model_validate_json(response.content)

    def put(self, path: str, model: type[Model], *, json: Any) -> Model:
        response = self._retry(lambda: self._http.put(API + path, json=json))
        return model.model_validate_json(response.content)

    def patch(self, path: str, model: type[Model], *, json: Any) -> Model:
        response = self._retry(lambda: self._http.patch(API + path, json=json))
        return model.model_validate_json(response.content)

    def call(
        self, method: str, path: str, headers: Mapping[str, str], content: Iterator[bytes] | None = None
    ) -> httpx.Response:
        """One request with headers and a body of bytes, without retries. The response may take a few minutes."""
        timeout = httpx.Timeout(30.0, read=LONG_RESPONSE_SECONDS)
        return _checked(
            self._http.request(method, API + path, headers=headers, content=content, timeout=timeout)
        )

    def repeat(self, method: str, path: str, headers: Mapping[str, str]) -> httpx.Response:
        """Like `call`, retried if the connection breaks or the server is busy."""
        return self._retry(lambda: self._http.request(method, API + path, headers=headers))

    def post_for_list(self, path: str, item: type[Model], *, json: Any) -> list[Model]:
        """POST with a list as response."""
        response = self._wait_while_busy(lambda: self._http.post(API + path, json=json))
        return [item.model_validate(entry) for entry in response.json()]

    def delete(self, path: str) -> None:
        self._wait_while_busy(lambda: self._http.delete(API + path))

    def delete_for(self, path: str, model: type[Model], params: Mapping[str, Any]) -> Model:
        """DELETE with a response body."""
        response = self._wait_while_busy(lambda: self._http.delete(API + path, params=params))
        return model.model_validate_json(response.content)

    def stream(self, path: str, last_id: str | None) -> Iterator[Message]:
        """Server-sent events, until the server closes the connection."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        # The server sends a comment every 15 s: after longer silence the connection is dead.
        with self._http.stream(
            "GET", API + path, headers=headers, timeout=httpx.Timeout(30.0, read=45.0)
        ) as response:
            if response.is_error:
                response.read()
            yield from parse_messages(_checked(response).iter_lines())

    def save(self, url: str, target: Path, digest: str, on_bytes: Callable[[int], None]) -> None:
        """Download ``url`` or what it redirects to, verify its SHA-256, and then move it to ``target``.

        The API key is not sent to another host.
        """
        partial = target.with_name(f".{target.name}.{uuid4().hex}.part")
        try:
            found = hashlib.sha256()
            with self._http.stream("GET", url, follow_redirects=True) as response, partial.open("wb") as out:
                if response.is_error:
                    response.read()
                for block in _checked(response).iter_bytes(BLOCK_BYTES):
                    out.write(block)
                    found.update(block)
                    on_bytes(len(block))
            if found.hexdigest() != digest:
                raise DigestMismatchError(
                    f"{target.name}: its SHA-256 is {found.hexdigest()} instead of {digest}"
                )
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def save_as(self, path: str, params: Mapping[str, Any], target: Path) -> None:
        """GET what the server computes for this request, and then move it to ``target``."""
        partial = target.with_name(f".{target.name}.{uuid4().hex}.part")
        timeout = httpx.Timeout(30.0, read=LONG_RESPONSE_SECONDS)
        try:
            with (
                self._http.stream("GET", API + path, params=params, timeout=timeout) as response,
                partial.open("wb") as out,
            ):
                if response.is_error:
                    response.read()
                for block in _checked(response).iter_bytes(BLOCK_BYTES):
                    out.write(block)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def _retry(self, call: Callable[[], httpx.Response]) -> httpx.Response:
        """Repeat a call that may be repeated, if the connection breaks or the server is busy."""
        return self._repeated(call, httpx.TransportError)

    def _wait_while_busy(self, call: Callable[[], httpx.Response]) -> httpx.Response:
        """Repeat a call only if the server refused it because it is busy: then it has changed nothing."""
        return self._repeated(call)

    def _repeated(
        self, call: Callable[[], httpx.Response], *lost: type[httpx.TransportError]
    ) -> httpx.Response:
        for wait_seconds in RETRY_SECONDS:
            try:
                response = call()
            except lost:
                time.sleep(wait_seconds)
                continue
            pause_seconds = _pause_seconds(response, wait_seconds)
            if pause_seconds is None:
                return _checked(response)
            time.sleep(pause_seconds)
        return _checked(call())


def _pause_seconds(response: httpx.Response, usual_seconds: float) -> float | None:
    """How long to wait before the call is repeated; None if it must not be."""
    if response.status_code not in BUSY:
        return None
    given = response.headers.get("retry-after", "")
    if not given.isdecimal():  # a date, or none at all, as from a proxy whose server is down
        return usual_seconds if response.status_code == httpx.codes.SERVICE_UNAVAILABLE else None
    asked_seconds = float(given)
    return None if asked_seconds > LONGEST_WAIT_SECONDS else max(usual_seconds, asked_seconds)


def _checked(response: httpx.Response) -> httpx.Response:
    if not response.is_error:
        return response
    if response.content and response.headers.get("content-type", "").startswith("application/problem+json"):
        raise ApiError(ErrorBody.model_validate_json(response.content))
    text = response.text[:200]
    title = response.reason_phrase
    detail = f"The server responded {response.status_code} {title} without an explanation: {text}"
    raise ApiError(
        ErrorBody(title=title, status=response.status_code, code="unexpected_answer", detail=detail)
    )
