"""Middleware around every request: its id, host and origin checks, security headers, and the handler of last resort.

It is one ASGI class, outermost, so no response bypasses it. It uses the plain protocol because streams and uploads pass
through it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import urlsplit
from uuid import uuid4

import structlog
from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainwright.tracing import TRACEPARENT, Span, span
from trainwright_backend.core.counters import REQUESTS
from trainwright_backend.core.errors import AppError, Forbidden, NotFound, body_too_large, problem_response
from trainwright_backend.core.settings import Settings

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)

SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

UNTRACED_PATHS = ("/api/v1/agent/", "/api/v1/health", "/metrics")
"""What nodes and monitoring request every few seconds."""

log = structlog.get_logger()


class RequestMiddleware:
    """ASGI middleware around the entire application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = settings.all_hosts
        self._public_origin = _origin(settings.public_url)
        self._headers = dict(SECURITY_HEADERS)
        self._templates: dict[int, str] = {}
        if settings.https:
            self._headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0
        refusal: Response | None = None
        started = time.perf_counter()
        seconds: float | None = None  # until the response starts

        async def send_with_headers(message: Message) -> None:
            nonlocal status, refusal, seconds
            if _is_too_large(message):
                refusal = problem_response(body_too_large(), request_id)
                message = {**message, "headers": list(refusal.raw_headers)}
            elif refusal is not None:
                message = {**message, "body": refusal.body}
            if message["type"] == "http.response.start":
                status, seconds = message["status"], time.perf_counter() - started
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/api/"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        with (
            structlog.contextvars.bound_contextvars(request_id=request_id),
            _traced(scope, request_id) as current,
        ):
            try:
                self._check(scope)
                await self._app(scope, receive, send_with_headers)
            except AppError as error:
                await problem_response(error, request_id)(scope, receive, send_with_headers)
            except ClientDisconnect:
                log.info("client disconnected", method=scope["method"], route=self._route(scope))
            except Exception:
                log.exception("request failed", method=scope["method"], route=self._route(scope))
                if status:  # the response has started; only closing the connection can signal the error
                    raise
                await problem_response(_internal_error(request_id), request_id)(
                    scope, receive, send_with_headers
                )
            finally:
                answered = "none" if seconds is None else f"{status // 100}xx"
                REQUESTS.labels(_method(scope), self._route(scope), answered).observe(
                    time.perf_counter() - started if seconds is None else seconds
                )
                current.rename(f"{_method(scope)} {self._route(scope)}")
                current.describe({"http.route": self._route(scope), "http.response.status_code": status})
                if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    current.fail(f"status {status}")
            log.debug(
                "request",
                method=scope["method"],
                route=self._route(scope),
                status=status,
                seconds=round(time.perf_counter() - started, 4),
            )

    def _route(self, scope: Scope) -> str:
        """The route's path template: the actual address may contain a one-time token or a signed link. The scope has the
        route as its module declares it, without the prefixes of the routers around it."""
        if not self._templates:
            contexts = iter_route_contexts(scope["app"].routes)
            self._templates = {id(context.original_route): str(context.path) for context in contexts}
        return self._templates.get(id(scope.get("route")), "none")

    def _check(self, scope: Scope) -> None:
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            raise NotFound("Addresses cannot contain a NUL character.")
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) > 1:
            raise AppError("several_hosts", 400, f"This request has {len(hosts)} Host headers. Send one.")
        host = hosts[0] if hosts else ""
        name = (host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host).lower()
        if "*" not in self._hosts and name not in self._hosts:
            raise AppError(
                "unknown_host",
                400,
                f"This server does not serve the host name {name[:100]!r}. "
                "Its operator can add it to TRAINWRIGHT_ALLOWED_HOSTS.",
            )
        # Browsers add neither keys nor node tokens by themselves, so such a request is not made with a user's cookie.
        has_token = headers.get("authorization", "").lower().startswith("bearer ")
        if scope["method"] not in SAFE_METHODS and not has_token:
            self._check_origin(headers, Request(scope).url.scheme, host)

    def _check_origin(self, headers: Headers, scheme: str, host: str) -> None:
        """Refuse requests that other sites make with a user's cookie. Clients other than browsers send neither header."""
        site = headers.get("sec-fetch-site")
        origin = headers.get("origin")
        if site is not None:
            foreign = site not in ("same-origin", "none")
        else:
            foreign = origin is not None and origin not in (f"{scheme}://{host}", self._public_origin)
        if foreign:
            raise Forbidden(
                "foreign_origin", "This request came from another site. Use the platform's own pages."
            )


@contextmanager
def _traced(scope: Scope, request_id: str) -> Iterator[Span]:
    """The span of a request."""
    if scope["path"].startswith(UNTRACED_PATHS):
        yield Span()
        return
    parent = Headers(scope=scope).get(TRACEPARENT)
    attributes = {"http.request.method": _method(scope), "trainwright.request_id": request_id}
    with span(_method(scope), parent, attributes) as current:
        yield current


def _method(scope: Scope) -> str:
    """The request's method. A client can invent others, without end."""
    return scope["method"] if scope["method"] in METHODS else "other"


def _is_too_large(message: Message) -> bool:
    """Whether this is the framework's plain-text refusal of a large body, which bypasses the error handlers."""
    if message["type"] != "http.response.start" or message["status"] != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return False
    return Headers(raw=message["headers"]).get("content-type", "").startswith("text/plain")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _internal_error(request_id: str) -> AppError:
    detail = f"Something went wrong on the server. Its log has the reason under request {request_id}."
    return AppError("internal_error", 500, detail)
