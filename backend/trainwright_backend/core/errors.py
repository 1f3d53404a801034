"""Errors that the caller can act on, returned as RFC 9457 problem documents.

Services raise an `AppError` (or a subclass) with a fixed code, a status and a sentence that says what to do. Any other
exception is a server error: 500 with the request's id, and the traceback in the log.
"""

# ruff: noqa: N818 (they are named after HTTP statuses)

import re
from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path

from trainwright.contracts.api.envelopes import ErrorBody
from trainwright.contracts.base import Problem, problems_in

TITLES = {460: "Checksum Mismatch"}
"""Titles of statuses that HTTP does not define (460 is from tus 1.0)."""

SECRET_FIELDS = frozenset(
    {"password", "current_password", "token", "secret", "authorization_code", "device_code"}
)
"""Fields whose refused values are not repeated in the response."""

WITHOUT_JSON_HEADER = "The body is read as JSON only with the header `Content-Type: application/json`: add it"


class AppError(Exception):
    """An error that the caller can act on."""

    def __init__(
        self,
        code: str,
        status: int,
        detail: str,
        *,
        errors: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.status = status
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})
        self.extensions = dict(extensions or {})


class NotFound(AppError):
    def __init__(self, detail: str, *, code: str = "not_found") -> None:
        super().__init__(code, 404, detail)


class Conflict(AppError):
    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[Problem] = (),
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(code, 409, detail, errors=errors, extensions=extensions)

    @classmethod
    def at(cls, field: str, value: Any, code: str, detail: str) -> "Conflict":
        """An error because of the value of one field."""
        return cls(code, detail, errors=[Problem(field=field, message=detail, value=value)])


class Invalid(AppError):
    """Invalid input, with the field, the value and the rule."""

    def __init__(self, errors: Sequence[Problem], *, detail: str = "", code: str = "invalid") -> None:
        super().__init__(code, 422, detail or _summary(errors), errors=errors)

    @classmethod
    def at(cls, field: str, message: str, value: Any = None) -> "Invalid":
        """An error with one problem at one field."""
        return cls([Problem(field=field, message=message, value=value)])


class Forbidden(AppError):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, 403, detail)


class Unauthorized(AppError):
    def __init__(self, detail: str, *, code: str = "not_signed_in") -> None:
        super().__init__(code, 401, detail, headers={"WWW-Authenticate": 'Bearer realm="trainwright"'})


class Busy(AppError):
    """The request is fine, but cannot be served now. The same request will succeed a little later."""

    def __init__(self, code: str, detail: str, *, retry_after_seconds: int = 2) -> None:
        super().__init__(code, 503, detail, headers={"Retry-After": str(retry_after_seconds)})


def body_too_large() -> AppError:
    """The error for a body that is refused unread."""
    return AppError("too_large", 413, "The body of this request is too large. Send less at once.")


def install_error_handlers(app: FastAPI) -> None:
    """Return every error of ``app`` as a problem document. `RequestMiddleware` handles all other exceptions."""
    app.add_exception_handler(AppError, _app_error)
    app.add_exception_handler(RequestValidationError, _request_validation)
    app.add_exception_handler(HTTPException, _http_error)


def problem_response(error: AppError, request_id: str) -> JSONResponse:
    """``error`` as an RFC 9457 document."""
    body = ErrorBody(
        title=TITLES.get(error.status) or HTTPStatus(error.status).phrase,
        status=error.status,
        code=error.code,
        detail=error.detail,
        request_id=request_id,
        errors=error.errors,
    )
    return JSONResponse(
        {**error.extensions, **body.model_dump(mode="json")},
        status_code=error.status,
        headers=error.headers,
        media_type="application/problem+json",
    )


def request_id_of(request: Request) -> str:
    """The request's id in responses and in the log."""
    return str(request.scope.get("state", {}).get("request_id", ""))


def _app_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AppError)
    if error.status >= 500:
        structlog.get_logger().warning("request refused", code=error.code, detail=error.detail)
    return problem_response(error, request_id_of(request))


def _request_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [_without_secret(problem) for problem in problems_in(_plain(error), _body_model(request))]
    return problem_response(Invalid(found), request_id_of(request))


def _http_error(request: Request, error: Exception) -> Response:
    """Errors of the framework itself: no such route, method not allowed."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return problem_response(body_too_large(), request_id_of(request))
    code = HTTPStatus(error.status_code).name.lower()
    detail = str(error.detail)
    if error.status_code == 404:
        detail = f"There is nothing at {request.url.path}. Check the address."
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_allowed_methods(request))
        detail = f"{request.method} is not allowed at {request.url.path}. Allowed: {headers['Allow']}."
    shown = AppError(code, error.status_code, detail, headers=headers)
    return problem_response(shown, request_id_of(request))


def _allowed_methods(request: Request) -> list[str]:
    """Methods of all routes at the request's address; the framework knows only those of the first one.

    `/runs/validate` also matches `/runs/{run}`. As in OpenAPI, the template with fewer parameters is the resource.
    """
    routes = iter_route_contexts(request.app.routes)
    paths = [(route.path or "", route.methods or ()) for route in routes]
    here = [(path, methods) for path, methods in paths if _path_pattern(path).match(request.url.path)]
    fewest = min((path.count("{") for path, _ in here), default=0)
    return sorted({method for path, methods in here if path.count("{") == fewest for method in methods})


@cache
def _path_pattern(path: str) -> re.Pattern[str]:
    return compile_path(path)[0]


def _plain(error: RequestValidationError) -> list[dict[str, Any]]:
    """The framework's errors, without the location (body, query, …) that it puts before each path."""
    plain = []
    for item in error.errors():
        if item["type"] == "json_invalid":
            reason = item.get("ctx", {}).get("error", "")
            plain.append({**item, "loc": (), "msg": f"The body is not valid JSON: {reason}", "input": None})
        elif isinstance(item["input"], bytes):  # unread, because the header does not say that it is JSON
            plain.append({**item, "type": "not_json", "loc": (), "msg": WITHOUT_JSON_HEADER, "input": None})
        else:
            plain.append({**item, "loc": tuple(item["loc"])[1:]})
    return plain


def _body_model(request: Request) -> type[BaseModel] | None:
    field = getattr(request.scope.get("route"), "body_field", None)
    annotation = getattr(getattr(field, "field_info", None), "annotation", None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _without_secret(problem: Problem) -> Problem:
    if problem.field.rpartition(".")[2] in SECRET_FIELDS:
        return problem.model_copy(update={"value": None})
    return problem


def _summary(errors: Sequence[Problem]) -> str:
    first = errors[0]
    where = f"{first.field}: " if first.field else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where}{first.message}{more}"
