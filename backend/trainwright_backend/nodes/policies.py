"""Policy of the agents' routes: the agent of a node, identified by its token."""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request
from sqlalchemy import bindparam, select

from trainwright_backend.core.errors import Unauthorized
from trainwright_backend.core.policy import Policy
from trainwright_backend.core.security import keyed_hash
from trainwright_backend.nodes.tables import Node

TOKEN_PURPOSE = "node"

_NODE = select(Node.id, Node.name).where(Node.token_hash == bindparam("hash"))
"""Built once (see `core.db`)."""


@dataclass(frozen=True)
class CallingNode:
    """The node whose agent or supervisor calls."""

    node_id: UUID
    name: str


class IsNode(Policy):
    """Admits nodes that joined and were not removed."""

    async def __call__(self, request: Request) -> CallingNode:
        return await self.decision(request, lambda: self._decide(request))

    def check(self, request: Request) -> CallingNode:
        return self.cached(request, lambda: self._decide(request))

    def _decide(self, request: Request) -> CallingNode:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        hashed = keyed_hash(request.app.state.settings.secret_key, TOKEN_PURPOSE, token.strip())
        with request.app.state.database.read() as session:
            row = session.execute(_NODE, {"hash": hashed}).one_or_none()
        if scheme.lower() != "bearer" or row is None:
            raise Unauthorized("This node token is not valid. Let the node join again with a new join token.")
        return CallingNode(row.id, row.name)


AsNode = Annotated[CallingNode, Depends(IsNode())]
