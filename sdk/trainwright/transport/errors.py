"""Errors that calls raise."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.contracts.api.envelopes import ErrorBody
from trainwright.contracts.base import Problem


class ApiError(Exception):
    """An error response. ``code`` is stable, ``detail`` says what to do, ``problems`` name fields."""

    def __init__(self, body: ErrorBody, retry_after_seconds: float = 0.0) -> None:
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
        self.retry_after_seconds = retry_after_seconds
        """The delay that the server asks for before the request is repeated."""


class UnexpectedResponseError(ApiError):
    """A response that is not one of the API: a redirect, a page of a proxy, or what this version cannot read."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(ErrorBody(title=title, status=status, code="unexpected_answer", detail=detail))


class DigestMismatchError(Exception):
    """A file does not have the expected digest."""


class FileChangedError(Exception):
    """A file changed during its upload."""
