"""What a response means: whether the request is repeated, and when; or which error is raised."""

from __future__ import annotations

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
    given = response.headers.get("retry-after", "")
    if not given.isdecimal():  # a date, or none at all, as from a proxy whose server is down
        return None if response.status_code == httpx.codes.TOO_MANY_REQUESTS else usual_seconds
    asked_seconds = float(given)
    return None if asked_seconds > MAX_WAIT_SECONDS else max(usual_seconds, asked_seconds)


def is_temporary(error: httpx.TransportError | ApiError) -> bool:
    """Whether the server may be away only for a while, as during its upgrade."""
    if isinstance(error, ApiError):
        return error.status in (httpx.codes.SERVICE_UNAVAILABLE, *UNANSWERED)
    return not is_untrusted(error)


def checked(response: httpx.Response) -> httpx.Response:
    """The response, unless it is an error.

    Raises:
        ApiError: it is.
    """
    if not response.is_error:
        return response
    if response.content and response.headers.get("content-type", "").startswith("application/problem+json"):
        raise ApiError(ErrorBody.model_validate_json(response.content))
    text = response.text[:200]
    title = response.reason_phrase
    late = " in time" if response.status_code == httpx.codes.GATEWAY_TIMEOUT else ""
    if response.status_code in UNANSWERED:
        detail = f"The proxy in front of the server got no response from it{late} ({response.status_code} {title}). Try again in a moment."
    else:
        detail = f"The server responded {response.status_code} {title} without an explanation{': ' if text else '.'}{text}"
    raise ApiError(
        ErrorBody(title=title, status=response.status_code, code="unexpected_answer", detail=detail)
    )
