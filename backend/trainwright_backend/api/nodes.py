"""Nodes, for site admins: join tokens, the list, load, draining, removal. What agents call is in `agent`."""

from typing import Annotated

from fastapi import Query

from trainwright.contracts.api.actions import NodeEdit
from trainwright.contracts.api.nodes import JoinToken, NewJoinToken, Node, NodeLoad
from trainwright_backend.api.dependencies import CurrentSettings, ReadSession, RequestedAddress, WriteSession
from trainwright_backend.auth.policies import SiteAdmin
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.nodes import load_history, service

router = ResourceRouter(tags=["nodes"], route_class=GuardedRoute)

Hours = Annotated[int, Query(ge=1, le=24)]


@router.post("/join-tokens", status_code=201)
def create_join_token(
    access: SiteAdmin,
    session: WriteSession,
    settings: CurrentSettings,
    requested: RequestedAddress,
    body: NewJoinToken,
) -> JoinToken:
    """Create a one-time token with which a machine may join within 15 minutes."""
    return service.create_join_token(session, settings, body.name, requested)


@router.get("/nodes")
def list_nodes(access: SiteAdmin, session: ReadSession, settings: CurrentSettings) -> list[Node]:
    """All nodes with their slots and the runs that occupy them."""
    return service.list_nodes(session, settings.timers)


@router.get("/nodes/{node}/load")
def get_node_load(access: SiteAdmin, session: ReadSession, node: str, hours: Hours = 24) -> NodeLoad:
    """The use of a node's CPU, memory, disk and GPUs over the last hours: minute by minute for up to 4 hours, otherwise as means of
    5 minutes."""
    return load_history.node_load(session, node, hours)


@router.patch("/nodes/{node}")
def edit_node(
    access: SiteAdmin, session: WriteSession, settings: CurrentSettings, node: str, body: NodeEdit
) -> Node:
    """Drain a node, so that no new runs are placed on it, and optionally move its runs off; or let it take runs again; allow it
    more or fewer slots."""
    return service.edit_node(session, node, body, settings.timers)


@router.delete("/nodes/{node}", status_code=204)
def delete_node(access: SiteAdmin, session: WriteSession, node: str) -> None:
    """Remove a node without runs, and revoke its token."""
    service.remove_node(session, node)
