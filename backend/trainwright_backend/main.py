"""The application: all routes under ``/api/v1``, the frontend, and the middleware around both."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from trainwright.contracts.api.envelopes import ErrorBody
from trainwright.contracts.api.metrics import MetricPoints
from trainwright.tracing import start_tracing
from trainwright_backend.api import monitoring, site
from trainwright_backend.api.routes import api_router
from trainwright_backend.auth.identity_provider import IdentityProvider
from trainwright_backend.control.loop import ControlLoop
from trainwright_backend.core.concurrency import concurrency_limits
from trainwright_backend.core.db import open_database
from trainwright_backend.core.errors import install_error_handlers
from trainwright_backend.core.log import configure_logging
from trainwright_backend.core.message_queue import Enqueuer
from trainwright_backend.core.middleware import RequestMiddleware
from trainwright_backend.core.notifications import listen_for_notifications
from trainwright_backend.core.open_store import open_store
from trainwright_backend.core.policy import Public, policies_of, require_policy_on_every_route
from trainwright_backend.core.polling import PollingThread
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.sse import Topics
from trainwright_backend.monitoring.exposition import Exposition
from trainwright_backend.nodes.policies import IsNode
from trainwright_backend.teams.notice_mails import delete_old, mail_due
from trainwright_backend.teams.webhook_sender import WebhookSender
from trainwright_backend.uploads.receiver import Receiver


class Application(FastAPI):
    """FastAPI whose OpenAPI document also describes errors and the points of live streams."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            _complete(super().openapi())
            _describe_credentials(self, super().openapi())
        return super().openapi()


def _complete(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for model in (ErrorBody, MetricPoints):
        schemas[model.__name__] = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas[model.__name__].pop("$defs", None)
    for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's own body, which is never sent
        schemas.pop(unused, None)
    refusal = {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}
    response = {"description": "Refused.", "content": {"application/problem+json": refusal}}
    for operation in (operation for path in document["paths"].values() for operation in path.values()):
        operation["responses"].pop("422", None)
        operation["responses"]["default"] = response
        stream = operation["responses"].get("200", {}).get("content", {}).get("text/event-stream")
        if stream is not None:
            stream["schema"] = SERVER_SENT_EVENT


SERVER_SENT_EVENT = {
    "type": "object",
    "description": "Each event of the stream. Its data is JSON.",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
    "required": ["data"],
}
CREDENTIALS = {
    "apiKey": {"type": "http", "scheme": "bearer", "description": "A person's API key, `tw_…`."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "__Host-trainwright",
        "description": "A browser's session.",
    },
    "nodeToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "A node's token, from `POST /agent/join`.",
    },
}
OF_PERSON: list[dict[str, list[str]]] = [{"apiKey": []}, {"session": []}]
OF_NODE: list[dict[str, list[str]]] = [{"nodeToken": []}]


def _describe_credentials(app: FastAPI, document: dict[str, Any]) -> None:
    """State the credentials of each operation, as its policies require them."""
    document["components"]["securitySchemes"] = CREDENTIALS
    for route in iter_route_contexts(app.routes):
        policies = [policy for policy in policies_of(route) if not isinstance(policy, Public)]
        credentials = OF_NODE if any(isinstance(policy, IsNode) for policy in policies) else OF_PERSON
        for method in route.methods or ():
            operation = document["paths"].get(route.path, {}).get(method.lower())
            if operation is not None:
                operation["security"] = credentials if policies else []


def create_app(settings: Settings) -> FastAPI:
    """Build the application. It opens nothing before it starts.

    Raises:
        RouteWithoutPolicyError: a route does not declare who may call it.
    """
    app = Application(
        title="Trainwright",
        version=version("trainwright"),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=_lifespan,
        generate_unique_id_function=_operation_id,
    )
    app.state.settings = settings
    app.state.static_folder = site.STATIC_FOLDER
    app.include_router(api_router())
    app.include_router(monitoring.router)
    app.include_router(site.pages_router)
    install_error_handlers(app)
    app.add_middleware(RequestMiddleware, settings=settings)
    require_policy_on_every_route(app)
    return app


def app_from_environment() -> FastAPI:
    """The application of a server process."""
    app = create_app(Settings())
    # Objects created so far stay; collecting garbage among them would delay some requests by 200 ms.
    gc.collect()
    gc.freeze()
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    configure_logging(settings.log_level, as_json=settings.log_json)
    stop_tracing = start_tracing("trainwright-api")
    app.state.topics = Topics()
    app.state.limits = concurrency_limits()
    app.state.identity_provider = IdentityProvider(settings) if settings.oidc_issuer else None
    app.state.enqueuer = Enqueuer(settings)
    app.state.store = open_store(settings)
    app.state.store.sweep_incoming()
    app.state.database = open_database(settings, {"enqueuer": app.state.enqueuer, "topics": app.state.topics})
    app.state.receiver = Receiver(app.state.database, app.state.store)
    loop = ControlLoop(app.state.database, settings, app.state.store) if settings.control_loop else None
    app.state.control = loop
    app.state.exposition = Exposition(
        app.state.database,
        settings,
        app.state.enqueuer.silent_brokers,
        None if loop is None else loop.worker_watch.waited_seconds,
    )
    webhooks = WebhookSender(app.state.database, settings)
    senders = _senders(app, webhooks) if settings.control_loop else []
    if loop is not None:
        loop.start()
    for sender in senders:
        sender.start()
    try:
        async with listen_for_notifications(app.state.database, app.state.topics):
            yield
    finally:
        webhooks.close()
        for sender in senders:
            sender.stop()
        if loop is not None:
            loop.stop()
        app.state.receiver.close()
        app.state.enqueuer.close()
        app.state.database.dispose()
        stop_tracing()


def _senders(app: FastAPI, webhooks: WebhookSender) -> list[PollingThread]:
    """The threads that send what transactions have queued, and delete what is old."""
    database, settings = app.state.database, app.state.settings
    return [
        PollingThread("webhooks", webhooks.start_due, "no webhooks are delivered"),
        PollingThread("mails", partial(mail_due, database, settings), "notices were not mailed"),
        PollingThread("old-notices", partial(delete_old, database), "old notices were not deleted", 600.0),
    ]


def _operation_id(route: APIRoute) -> str:
    return route.name
