"""Health, the spec's schema and presets, the series, the OpenAPI document, and the built frontend."""

import re
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.convertors import Convertor, register_url_convertor

from trainwright.contracts.api.envelopes import Health, SpecInfo
from trainwright.contracts.base import Problem
from trainwright.contracts.presets import PRESETS
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.series import FAMILIES, SERIES, SeriesRegistry
from trainwright_backend.api.dependencies import ReadSession
from trainwright_backend.core.errors import AppError, NotFound
from trainwright_backend.core.policy import public

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

router = APIRouter(tags=["site"], dependencies=[public("no data of any user")])
pages_router = APIRouter(include_in_schema=False, dependencies=[public("the program of the pages, no data")])

_HASHED_NAME = re.compile(r"-[A-Za-z0-9_-]{8,}\.\w+$")


@router.get("/health")
def get_health(session: ReadSession, request: Request) -> Health:
    """Whether the API, its database and its control loop work; 503 `not_ready` if the loop is stuck."""
    session.connection()
    loop = request.app.state.control
    if loop is None:
        return Health(status="ok", version=version("trainwright"))
    idle_seconds: float = loop.idle_seconds()
    if idle_seconds > loop.max_idle_seconds():
        raise _stuck_loop(idle_seconds, loop.max_idle_seconds())
    return Health(status="ok", version=version("trainwright"), control_loop_seconds=round(idle_seconds, 1))


@router.get("/spec")
def get_spec() -> SpecInfo:
    """The JSON Schema of a run's spec, with a description of every field, and the named model sizes."""
    return SpecInfo(run_spec=RunSpec.model_json_schema(), presets=PRESETS)


@router.get("/series")
def list_series() -> SeriesRegistry:
    """What the series of runs mean: title, unit and group of each, in the order of charts."""
    return SeriesRegistry(series=list(SERIES), families=list(FAMILIES))


@router.get("/openapi.json", include_in_schema=False)
def get_openapi(request: Request) -> JSONResponse:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


@pages_router.get("/{path:page}")
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


def _stuck_loop(idle_seconds: float, longest_seconds: float) -> AppError:
    remedy = "Look in this process's log for what it waits for; if it stays so, restart the process."
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
    except OSError:  # no file has such a name: it is too long
        return None
