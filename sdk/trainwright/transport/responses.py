"""What a response means: whether the request is repeated, and when; or which error is raised."""

from __future__ import annotations

import time

import httpx

from trainwright.contracts.api.envelopes import ErrorBody
from trainwright.transport.errors import ApiError
from trainwright.transport.tls import is_untrusted

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


def pause_seconds(response: httpx.Response, usual_seconds: float, *, is_repeatable: bool) -> float | None:
    """How long to wait before the call is repeated; None if it must not be.

    Args:
        usual_seconds: the delay if the response asks for none.
        is_repeatable: whether the request may be carried out twice.
    """
    if response.status_code not in (*BUSY, *(UNANSWERED if is_repeatable else ())):
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
    """
    if not response.is_error:
        return response
    asked_seconds = retry_after_seconds(response) or 0.0
    if response.content and response.headers.get("content-type", "").startswith("application/problem+json"):
        raise ApiError(ErrorBody.model_validate_json(response.content), asked_seconds)
    text = response.text[:200]
    title = response.reason_phrase
    late = " in time" if response.status_code == httpx.codes.GATEWAY_TIMEOUT else ""
    if response.status_code in UNANSWERED:
        detail = f"The proxy in front of the server got no response from it{late} ({response.status_code} {title}). Try again in a moment."
    else:
        detail = f"The server responded {response.status_code} {title} without an explanation{': ' if text else '.'}{text}"
    body = ErrorBody(title=title, status=response.status_code, code="unexpected_answer", detail=detail)
    raise ApiError(body, asked_seconds)
