"""The router of a resource, which tries its routes only for paths that one of them can have.

FastAPI tries the routes of all included routers one after another, and again on each level of inclusion. With 150 routes, that
takes a large share of the CPU time of a short request.
"""

from functools import cached_property
from itertools import product

from fastapi import APIRouter
from fastapi.routing import iter_route_contexts
from starlette.routing import Match
from starlette.types import Scope

API_PREFIX = "/api/v1"

_POSITIONS = (0, 2, 4)
"""Positions of the segments of `/teams/{team}/runs/{run}/metrics` that are compared; most others are parameters."""
_PARAMETER, _REST, _END = "{}", "{:path}", None
"""In place of a literal segment: any one, any number of them, and none."""

Outline = tuple[str | None, ...]


class ResourceRouter(APIRouter):
    """A router below `API_PREFIX`."""

    @cached_property
    def _outlines(self) -> frozenset[Outline]:
        return frozenset(_outline(context.path or "") for context in iter_route_contexts(self.routes))

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(API_PREFIX)
        segments = path.split("/", 6)[1:]
        choices = [
            (segments[place], _PARAMETER, _REST) if place < len(segments) else (_END, _REST)
            for place in _POSITIONS
        ]
        if self._outlines.isdisjoint(product(*choices)):
            return Match.NONE, {}
        return super().matches(scope)


def _outline(template: str) -> Outline:
    """The segments of a path's template in `_POSITIONS`, such as ``("teams", "runs", "metrics")``."""
    fixed, path_parameter, _ = template.partition(":path}")
    segments = fixed.split("/")[1:]
    if path_parameter:
        segments.pop()
    end = _REST if path_parameter else _END
    named = [_PARAMETER if segment.startswith("{") else segment for segment in segments]
    return tuple(named[place] if place < len(named) else end for place in _POSITIONS)
