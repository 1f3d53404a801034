"""The application: every feature's routes under ``/api/v1``, the frontend beside them, and what surrounds both."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from trainwright.contracts.api.envelopes import ErrorBody
from trainwright.contracts.api.metrics import MetricPoints
from trainwright_backend.auth import router as auth
from trainwright_backend.checkpoints import layout_router, retention_router, runs_router, usage_router
from trainwright_backend.checkpoints import router as checkpoints
from trainwright_backend.control import ControlLoop
from trainwright_backend.core import site, storage
from trainwright_backend.core.db import open_database
from trainwright_backend.core.enqueue import Enqueuer
from trainwright_backend.core.errors import install_error_handlers
from trainwright_backend.core.listen import listening
from trainwright_backend.core.log import configure_logging
from trainwright_backend.core.middleware import Surroundings
from trainwright_backend.core.policy import assert_every_route_has_a_policy
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.core.stream import Topics
from trainwright_backend.datasets import router as datasets
from trainwright_backend.metrics import compare_router
from trainwright_backend.metrics import router as metrics
from trainwright_backend.nodes import estimate_router
from trainwright_backend.nodes import router as nodes
from trainwright_backend.runs import recipes_router
from trainwright_backend.runs import router as runs
from trainwright_backend.teams import router as teams
from trainwright_backend.uploads import router as uploads
from trainwright_backend.uploads.receiving import Receiver

API_PREFIX = "/api/v1"
LARGEST_BODY_BYTES = 1 << 20
"""Of a request. Routes that take more say so (`SHIPPED`, `STREAMED`)."""

ROUTERS = (
    auth.router,
    teams.router,
    datasets.router,
    uploads.router,  # after the one whose address `uploads/preview` it would take for an id
    runs.router,
    layout_router.router,
    recipes_router.router,
    usage_router.router,
    metrics.router,
    compare_router.router,
    runs_router.router,
    checkpoints.router,
    retention_router.router,
    nodes.router,
    estimate_router.router,
    storage.router,
    site.api_router,
)


class Application(FastAPI):
    """FastAPI whose description also tells what a refusal and a live point look like."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            _complete(super().openapi())
        return super().openapi()


def _complete(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for model in (ErrorBody, MetricPoints):
        schemas[model.__name__] = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas[model.__name__].pop("$defs", None)
    for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's own body, which we never send
        schemas.pop(unused, None)
    refusal = {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}
    answer = {"description": "Refused.", "content": {"application/problem+json": refusal}}
    for operation in (operation for path in document["paths"].values() for operation in path.values()):
        operation["responses"].pop("422", None)
        operation["responses"]["default"] = answer


def create_app(settings: Settings) -> FastAPI:
    """Build the application; nothing is opened before it starts.

    Raises:
        RouteWithoutPolicyError: a route says not who may call it.
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
    api = APIRouter(prefix=API_PREFIX, max_body_size=LARGEST_BODY_BYTES)
    for router in ROUTERS:
        api.include_router(router)
    app.include_router(api)
    app.include_router(site.pages_router)
    install_error_handlers(app)
    app.add_middleware(Surroundings, settings=settings)
    assert_every_route_has_a_policy(app)
    return app


def app_from_environment() -> FastAPI:
    """The application as a server process makes it."""
    app = create_app(Settings())
    # What was made until here stays; looking through it for garbage would hold a request up for 200 ms now and then.
    gc.collect()
    gc.freeze()
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    configure_logging(settings.log_level, as_json=settings.log_json)
    app.state.topics = Topics()
    app.state.enqueuer = Enqueuer(settings)
    app.state.store = LocalStore(settings.resolved_object_store_dir, settings.secret_key)
    app.state.store.sweep_incoming()
    app.state.database = open_database(settings, {"enqueuer": app.state.enqueuer, "topics": app.state.topics})
    app.state.receiver = Receiver(app.state.database, app.state.store)
    loop = ControlLoop(app.state.database, settings, app.state.store) if settings.control_loop else None
    app.state.control = loop
    if loop is not None:
        loop.start()
    try:
        async with listening(app.state.database, app.state.topics):
            yield
    finally:
        if loop is not None:
            loop.stop()
        app.state.receiver.close()
        app.state.enqueuer.close()
        app.state.database.dispose()


def _operation_id(route: APIRoute) -> str:
    return route.name
