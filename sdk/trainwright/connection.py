"""The connection of the client to its server: requests, repetition, streams of events, checked downloads, errors."""

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
from trainwright.sse import Message, messages

Answer = TypeVar("Answer", bound=BaseModel)

API = "/api/v1"
BLOCK_BYTES = 1 << 20
LONG_ANSWER_SECONDS = 300.0
"""At the end of a large upload the server may read all of it once more."""

RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Waits between the tries of a call that may be repeated."""


class ApiError(Exception):
    """The server refused. ``code`` is fixed, ``detail`` says what to do, ``problems`` name fields."""

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
    """A downloaded file is not the one that was announced."""


class Connection:
    """Typed HTTP to one server.

    Args:
        server: address, such as ``http://127.0.0.1:8000``.
        key: API key (``tw_…``); without it only the calls that need none work, until a link is used.
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

    def get(self, path: str, answer: type[Answer], params: Mapping[str, Any] | None = None) -> Answer:
        return answer.model_validate_json(self.fetch(path, params).content)

    def get_list(
        self, path: str, item: type[Answer], params: Mapping[str, Any] | None = None
    ) -> list[Answer]:
        return [item.model_validate(entry) for entry in self.fetch(path, params).json()]

    def fetch(self, path: str, params: Mapping[str, Any] | None = None) -> httpx.Response:
        """GET, repeated when the connection breaks or the server is busy."""
        return self._repeated(lambda: self._http.get(API + path, params=params))

    def post(
        self, path: str, answer: type[Answer], *, json: Any = None, params: Mapping[str, Any] | None = None
    ) -> Answer:
        response = self._http.post(API + path, json=json, params=params)
        return answer.model_validate_json(_checked(response).content)

    def post_repeatable(self, path: str, answer: type[Answer], *, json: Any) -> Answer:
        """POST under an idempotency key, so that it may be repeated when the answer is lost."""
        headers = {"Idempotency-Key": str(uuid4())}
        response = self._repeated(lambda: self._http.post(API + path, json=json, headers=headers))
        return answer.model_validate_json(response.content)

    def put(self, path: str, answer: type[Answer], *, json: Any) -> Answer:
        response = self._repeated(lambda: self._http.put(API + path, json=json))
        return answer.model_validate_json(response.content)

    def patch(self, path: str, answer: type[Answer], *, json: Any) -> Answer:
        response = self._repeated(lambda: self._http.patch(API + path, json=json))
        return answer.model_validate_json(response.content)

    def call(
        self, method: str, path: str, headers: Mapping[str, str], content: Iterator[bytes] | None = None
    ) -> httpx.Response:
        """One request that is about its headers or its bytes, once; its answer may take a few minutes."""
        timeout = httpx.Timeout(30.0, read=LONG_ANSWER_SECONDS)
        return _checked(
            self._http.request(method, API + path, headers=headers, content=content, timeout=timeout)
        )

    def repeat(self, method: str, path: str, headers: Mapping[str, str]) -> httpx.Response:
        """As `call`, repeated when the connection breaks or the server is busy."""
        return self._repeated(lambda: self._http.request(method, API + path, headers=headers))

    def post_for_list(self, path: str, item: type[Answer], *, json: Any) -> list[Answer]:
        """POST whose answer is a list."""
        response = _checked(self._http.post(API + path, json=json))
        return [item.model_validate(entry) for entry in response.json()]

    def delete(self, path: str) -> None:
        _checked(self._http.delete(API + path))

    def delete_for(self, path: str, answer: type[Answer], params: Mapping[str, Any]) -> Answer:
        """DELETE whose answer says what it did."""
        return answer.model_validate_json(_checked(self._http.delete(API + path, params=params)).content)

    def stream(self, path: str, last_id: str | None) -> Iterator[Message]:
        """Server-sent events of one connection, until the server closes it."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        # The server sends a comment every 15 s: longer silence is a dead connection.
        with self._http.stream(
            "GET", API + path, headers=headers, timeout=httpx.Timeout(30.0, read=45.0)
        ) as response:
            if response.is_error:
                response.read()
            yield from messages(_checked(response).iter_lines())

    def save(self, url: str, target: Path, digest: str, on_bytes: Callable[[int], None]) -> None:
        """Download ``url`` to ``target`` and check its SHA-256 before it gets its name."""
        partial = target.with_name(f".{target.name}.{uuid4().hex}.part")
        try:
            found = hashlib.sha256()
            with self._http.stream("GET", url) as response, partial.open("wb") as out:
                if response.is_error:
                    response.read()
                for block in _checked(response).iter_bytes(BLOCK_BYTES):
                    out.write(block)
                    found.update(block)
                    on_bytes(len(block))
            if found.hexdigest() != digest:
                raise DigestMismatchError(
                    f"{target.name}: got SHA-256 {found.hexdigest()}, announced was {digest}"
                )
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def _repeated(self, call: Callable[[], httpx.Response]) -> httpx.Response:
        for wait_seconds in RETRY_SECONDS:
            try:
                response = call()
            except httpx.TransportError:
                time.sleep(wait_seconds)
                continue
            if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                return _checked(response)
            time.sleep(wait_seconds)
        return _checked(call())


def _checked(response: httpx.Response) -> httpx.Response:
    if not response.is_error:
        return response
    if response.content and response.headers.get("content-type", "").startswith("application/problem+json"):
        raise ApiError(ErrorBody.model_validate_json(response.content))
    text = response.text[:200]
    title = response.reason_phrase
    detail = f"The server answered {response.status_code} {title} without an explanation: {text}"
    raise ApiError(
        ErrorBody(title=title, status=response.status_code, code="unexpected_answer", detail=detail)
    )
