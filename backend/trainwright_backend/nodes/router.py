"""HTTP of nodes for site admins: join tokens, the list, draining, removal. The agents' routes are in `agent_router`."""

from fastapi import APIRouter, Request

from trainwright.contracts.api.nodes import JoinToken, NewJoinToken, Node
from trainwright.contracts.api.verbs import NodeEdit
from trainwright_backend.auth.policies import SiteAdmin
from trainwright_backend.core.db import ReadSession, WriteSession
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.nodes import agent_router, service

router = APIRouter(route_class=GuardedRoute)
router.include_router(agent_router.router)
people = APIRouter(tags=["nodes"], route_class=GuardedRoute)


@people.post("/join-tokens", status_code=201)
def create_join_token(
    access: SiteAdmin, session: WriteSession, request: Request, body: NewJoinToken
) -> JoinToken:
    """A one-time token with which a machine may join, within 15 minutes."""
    return service.create_join_token(session, request.app.state.settings, body.name)


@people.get("/nodes")
def list_nodes(access: SiteAdmin, session: ReadSession, request: Request) -> list[Node]:
    """All nodes with their slots, and what occupies these."""
    return service.list_nodes(session, request.app.state.settings.timers)


@people.patch("/nodes/{node}")
def edit_node(access: SiteAdmin, session: WriteSession, request: Request, node: str, body: NodeEdit) -> Node:
    """Drain a node, so that nothing new is placed on it, or let it take runs again."""
    return service.edit_node(session, node, body, request.app.state.settings.timers)


@people.delete("/nodes/{node}", status_code=204)
def delete_node(access: SiteAdmin, session: WriteSession, node: str) -> None:
    """Remove a node on which nothing runs; its token ends."""
    service.remove_node(session, node)


router.include_router(people)
