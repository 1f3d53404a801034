"""The metrics of this process and of the platform, for Prometheus."""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from trainwright_backend.monitoring.exposition import CONTENT_TYPE, Exposition
from trainwright_backend.monitoring.policies import HasMetricsToken

router = APIRouter(include_in_schema=False, dependencies=[Depends(HasMetricsToken())])


@router.get("/metrics")
def get_metrics(request: Request) -> Response:
    """The metrics in Prometheus's text format."""
    exposition: Exposition = request.app.state.exposition
    return Response(exposition.text(), media_type=CONTENT_TYPE, headers={"Cache-Control": "no-store"})
