"""What a response means: whether the request is repeated, and when; or which error is raised."""

from __future__ import annotations

import time
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from trainwright.contracts.api.envelopes import ErrorBody
from trainwright.transport.errors import ApiError, UnexpectedResponseError
from trainwright.transport.tls import is_untrusted

Model = TypeVar("Model", bound=BaseModel)

API = "/api/v1"

RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Delays between retries, unless the server asks for longer ones (Retry-After)."""

BUSY = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)
"""The server refused a request and changed nothing. The same request succeeds later."""

UNANSWERED = (httpx.codes.BAD_GATEWAY, httpx.codes.GATEWAY_TIMEOUT)
"""A proxy got no response from the server, which may have carried the request out."""

UNREACHABLE_SECONDS = 900.0
"""How long calls that wait for something keep trying to reach a server that does not respond."""

MAX_WAIT_SECONDS = 30.0
"""If the server asks for a longer delay, the error is raised at once: the caller can do something else."""


def pause_seconds(response: httpx.Response, usual_seconds: float, *, is_idempotent: bool) -> float | None:
    """How long to wait before the call is repeated; None if it must not be.

    Args:
        usual_seconds: the delay if the response asks for none.
        is_idempotent: whether the request may be carried out twice.
    """
    if response.status_code not in (*BUSY, *(UNANSWERED if is_idempotent else ())):
        return None
    asked_seconds = retry_after_seconds(response)
    if asked_seconds is None:
        return None if response.status_code == httpx.codes.TOO_MANY_REQUESTS else usual_seconds
    return None if asked_seconds > MAX_WAIT_SECONDS else max(usual_seconds, asked_seconds)


def retry_after_seconds(response: httpx.Response) -> float | None:
    """The delay that the server asks for; None if it names a date, or none at all, as a proxy whose server is down."""
    given = response.headers.get("retry-after", "")
    return float(given) if given.isdecimal() else None


def is_temporary(error: httpx.TransportError | ApiError) -> bool:
    """Whether the server may be busy or away only for a while, as during its upgrade."""
    if isinstance(error, ApiError):
        return error.status in (*BUSY, *UNANSWERED)
    return not is_untrusted(error)


class RetryTimer:
    """The pauses between the attempts of a call that waits for a server that is busy or away."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._failures = 0

    def reset(self) -> None:
        """Start over, since there was some progress."""
        self._since, self._failures = None, 0

    def pause_seconds(self, error: httpx.TransportError | ApiError) -> float:
        """How long to wait after ``error``. The delay that the server asks for is respected.

        Raises:
            httpx.TransportError: ``error``, if it is not temporary, or after `UNREACHABLE_SECONDS` without progress.
            ApiError: the same.
        """
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        asked_seconds = error.retry_after_seconds if isinstance(error, ApiError) else 0.0
        if not is_temporary(error) or max(now - self._since, asked_seconds) > UNREACHABLE_SECONDS:
            raise error
        usual_seconds = RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
        self._failures += 1
        return max(usual_seconds, asked_seconds)


def checked(response: httpx.Response) -> httpx.Response:
    """The response, unless it is an error.

    Raises:
        ApiError: it is.
        UnexpectedResponseError: it is a redirect or a web page.
    """
    if response.is_redirect:
        raise UnexpectedResponseError(response.status_code, response.reason_phrase, _redirect(response))
    if is_web_page(response) and not response.is_error:
        detail = (
            f"{_asked(response)} gave a web page instead of data. A proxy may want you to sign in, or the address is not that of a"
            " Trainwright server."
        )
        raise UnexpectedResponseError(response.status_code, response.reason_phrase, detail)
    if not response.is_error:
        return response
    asked_seconds = retry_after_seconds(response) or 0.0
    if response.content and response.headers.get("content-type", "").startswith("application/problem+json"):
        raise ApiError(parsed(response, ErrorBody), asked_seconds)
    text = "" if is_web_page(response) else response.text[:200]
    title = response.reason_phrase
    late = " in time" if response.status_code == httpx.codes.GATEWAY_TIMEOUT else ""
    if response.status_code in UNANSWERED:
        detail = f"The proxy in front of the server got no response from it{late} ({response.status_code} {title}). Try again in a moment."
    else:
        detail = f"The server responded {response.status_code} {title} without an explanation{': ' if text else '.'}{text}"
    body = ErrorBody(title=title, status=response.status_code, code="unexpected_answer", detail=detail)
    raise ApiError(body, asked_seconds)


def is_web_page(response: httpx.Response) -> bool:
    """Whether the response is HTML, as that of a proxy in front of the server, which has no HTML under the API."""
    return bool(response.headers.get("content-type", "").startswith("text/html"))


def parsed(response: httpx.Response, model: type[Model]) -> Model:
    """The content of the response.

    Raises:
        UnexpectedResponseError: it has another form.
    """
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        raise _unreadable(response, error) from error


def parsed_list(response: httpx.Response, item: type[Model]) -> list[Model]:
    """The items of the response, a JSON array.

    Raises:
        UnexpectedResponseError: it has another form.
    """
    return _items(response, _json(response), item)


def parsed_page(response: httpx.Response, item: type[Model]) -> tuple[list[Model], str | None]:
    """The items of a page, and the cursor of the next one. Servers of version 0.1 answer with an array for some lists.

    Raises:
        UnexpectedResponseError: it has another form.
    """
    content = _json(response)
    if isinstance(content, dict):
        return _items(response, content.get("items"), item), content.get("next_cursor")
    return _items(response, content, item), None


def _items(response: httpx.Response, entries: object, item: type[Model]) -> list[Model]:
    if not isinstance(entries, list):
        raise _unreadable(response, "it has no list")
    try:
        return [item.model_validate(entry) for entry in entries]
    except ValidationError as error:
        raise _unreadable(response, error) from error


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise _unreadable(response, "it is not JSON") from error


def _redirect(response: httpx.Response) -> str:
    """What a redirect means: often the server has moved to https."""
    location = response.headers.get("location", "")
    address, path, _ = location.partition(API)
    if path and address.startswith(("http://", "https://")) and "?" not in address:
        return f"{_asked(response)} redirects to {location}. Use {address} as the address of the server (--server)."
    return (
        f"{_asked(response)} redirects to {location or 'no address'}. A proxy may want you to sign in, or the address is not that of"
        " a Trainwright server."
    )


def _unreadable(response: httpx.Response, reason: ValidationError | str) -> UnexpectedResponseError:
    if isinstance(reason, ValidationError):
        first = reason.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        reason = f"{field}: {first['msg']}" if field else first["msg"]
    detail = (
        f"{_asked(response)} gave a response that this version of the client cannot read: {reason}. Is it the address of a"
        " Trainwright server, and does the client have its version?"
    )
    return UnexpectedResponseError(response.status_code, response.reason_phrase, detail)


def _asked(response: httpx.Response) -> str:
    return f"{response.request.method} {response.request.url.copy_with(query=None)}"
