"""Health, the spec's schema and presets, the series, the OpenAPI document, and the built frontend."""

import re
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.convertors import Convertor, register_url_convertor

from trainwright.contracts.api.envelopes import Health, PartProblem, SpecInfo
from trainwright.contracts.base import Problem
from trainwright.contracts.presets import PRESET_FAMILIES, PRESETS
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.series import FAMILIES, SERIES, SeriesRegistry
from trainwright.planner.gpus import gpu_models
from trainwright.planner.preset_sizes import preset_parameters
from trainwright_backend.api.dependencies import ReadSession
from trainwright_backend.core.component_status import read_part_problems
from trainwright_backend.core.errors import AppError, NotFound
from trainwright_backend.core.message_queue import Enqueuer
from trainwright_backend.core.policy import public
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.thread_context import ContextRoute

STATIC_FOLDER = Path(__file__).resolve().parents[1] / "static"

NO_FRONTEND = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Trainwright</title></head>
<body><main><h1>Trainwright is running</h1><p>The pages are not built yet. Run <code>make frontend</code> and reload.
The API is at <code>/api/v1</code>.</p></main></body></html>
"""


class PagePath(Convertor[str]):
    """Any path except the API's, so that an unknown API address is a 404 problem and not a page."""

    regex = r"(?!api(?:/|$)).*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("page", PagePath())

router = ResourceRouter(tags=["site"], dependencies=[public("no data of any user")], route_class=ContextRoute)
pages_router = APIRouter(include_in_schema=False, dependencies=[public("the program of the pages, no data")])

_HASHED_NAME = re.compile(r"-[A-Za-z0-9_-]{8,}\.\w+$")


@router.get("/health")
def get_health(session: ReadSession, request: Request) -> Health:
    """Whether the platform works: `degraded` names the parts that do not; 503 `not_ready` says that no runs are
    placed."""
    session.connection()
    loop = request.app.state.control
    idle_seconds: float | None = None if loop is None else loop.idle_seconds()
    if idle_seconds is not None and idle_seconds > loop.max_idle_seconds():
        raise _stuck_loop(idle_seconds, loop.max_idle_seconds())
    idle_worker = None if loop is None else loop.worker_watch.problem()
    problems = _part_problems(request.app.state.settings, request.app.state.enqueuer, idle_worker)
    return Health(
        status="degraded" if problems else "ok",
        version=version("trainwright"),
        problems=problems,
        sends_mail=request.app.state.settings.smtp_url is not None,
        control_loop_seconds=None if idle_seconds is None else round(idle_seconds, 1),
    )


@router.get("/spec")
def get_spec() -> SpecInfo:
    """The JSON Schema of a run's spec, with a description of every field, and the named model sizes."""
    return SpecInfo(
        run_spec=RunSpec.model_json_schema(),
        presets=PRESETS,
        preset_parameters=preset_parameters(),
        preset_families=PRESET_FAMILIES,
        gpus=gpu_models(),
    )


@router.get("/series")
def list_series() -> SeriesRegistry:
    """What the series of runs mean: title, unit and group of each, in the order of charts."""
    return SeriesRegistry(series=list(SERIES), families=list(FAMILIES))


@router.get("/openapi.json", include_in_schema=False)
def get_openapi(request: Request) -> JSONResponse:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


@pages_router.api_route("/{path:page}", methods=["GET", "HEAD"])
def get_page(path: str, request: Request) -> Response:
    """A file of the frontend, or the frontend itself for addresses that it resolves."""
    folder: Path = request.app.state.static_folder
    file = _file_of_page(folder, path)
    if file is not None:
        immutable = path.startswith("assets/") and _HASHED_NAME.search(path)
        caching = "public, max-age=31536000, immutable" if immutable else "no-cache"
        return FileResponse(file, headers={"Cache-Control": caching})
    if path.startswith("assets/"):
        raise NotFound("There is no such file. Reload the page: the platform was upgraded.")
    index = folder / "index.html"
    if not index.is_file():
        return HTMLResponse(NO_FRONTEND, headers={"Cache-Control": "no-cache"})
    return FileResponse(index, headers={"Cache-Control": "no-cache"})


def _part_problems(settings: Settings, enqueuer: Enqueuer, idle_worker: str | None) -> list[PartProblem]:
    found = {} if settings.parts_file is None else read_part_problems(settings.parts_file)
    silent = dict.fromkeys(enqueuer.silent_brokers(), "does not respond. New work starts some seconds late.")
    if idle_worker is not None:
        silent["worker"] = idle_worker
    return [PartProblem(part=name, message=message) for name, message in sorted((silent | found).items())]


def _stuck_loop(idle_seconds: float, longest_seconds: float) -> AppError:
    remedy = "This process's log shows what it waits for. If this persists, restart the process."
    problem = Problem(
        field="control_loop_seconds",
        message=f"It must complete a round within {longest_seconds:.0f} s. {remedy}",
        value=round(idle_seconds, 1),
    )
    detail = (
        f"The control loop has not completed a round for {idle_seconds:.0f} s: while it leads, no run is placed and no "
        f"expired lease is closed. {remedy}"
    )
    return AppError("not_ready", 503, detail, errors=[problem])


def _file_of_page(folder: Path, path: str) -> Path | None:
    try:
        file = (folder / path).resolve()
        return file if file.is_file() and file.is_relative_to(folder.resolve()) else None
    except OSError:  # the name is too long for any file
        return None
