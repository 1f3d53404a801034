"""The routes under ``/api/v1``: one module per resource, named as in the address."""

from fastapi import APIRouter

from trainwright_backend.api import (
    agent,
    audit,
    auth,
    blobs,
    body_limits,
    checkpoints,
    datasets,
    device,
    events,
    limits,
    logs,
    me,
    metrics,
    nodes,
    notices,
    oidc,
    queue,
    recipes,
    runs,
    samples,
    service_accounts,
    site,
    teams,
    tokenizers,
    uploads,
    usage,
    views,
    webhooks,
)
from trainwright_backend.core.resource_router import API_PREFIX

RESOURCES = (
    auth,
    oidc,
    device,
    me,
    notices,
    teams,
    service_accounts,
    uploads,
    datasets,
    tokenizers,
    runs,
    queue,
    events,
    samples,
    limits,
    logs,
    metrics,
    checkpoints,
    recipes,
    usage,
    audit,
    webhooks,
    views,
    nodes,
    agent,
    blobs,
    site,
)


def api_router() -> APIRouter:
    """All resources."""
    router = APIRouter(prefix=API_PREFIX, max_body_size=body_limits.STANDARD)
    for resource in RESOURCES:
        router.include_router(resource.router)
    return router
