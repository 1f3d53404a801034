"""What routes take besides their path, query and body, as types: a session, the object store, the settings."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from trainwright_backend.auth import audit
from trainwright_backend.auth.identity_provider import IdentityProvider
from trainwright_backend.core.db import Database, Read, Write
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.sse import Topics
from trainwright_backend.core.thread_context import ThreadContext
from trainwright_backend.teams.team_locks import hold_team_from_begin
from trainwright_backend.uploads.receiver import Receiver


async def get_settings(request: Request) -> Settings:
    settings = request.app.state.settings
    assert isinstance(settings, Settings)
    return settings


async def get_database(request: Request) -> Database:
    database = request.app.state.database
    assert isinstance(database, Database)
    return database


async def get_store(request: Request) -> ObjectStore:
    store = request.app.state.store
    assert isinstance(store, ObjectStore)
    return store


async def get_receiver(request: Request) -> Receiver:
    receiver = request.app.state.receiver
    assert isinstance(receiver, Receiver)
    return receiver


async def get_topics(request: Request) -> Topics:
    topics = request.app.state.topics
    assert isinstance(topics, Topics)
    return topics


async def get_identity_provider(request: Request) -> IdentityProvider:
    provider: IdentityProvider | None = request.app.state.identity_provider
    if provider is None:
        detail = "This installation has no identity provider. Sign in with your password, or ask the operator (TRAINWRIGHT_OIDC_ISSUER)."
        raise Conflict("no_provider", detail)
    return provider


async def get_requested_address(request: Request) -> str:
    """Scheme and host of the request, whose host the middleware has checked; behind a proxy that ends TLS, a browser's
    `Origin` has the right scheme."""
    host, origin = request.url.netloc, request.headers.get("origin")
    return origin if origin in (f"http://{host}", f"https://{host}") else f"{request.url.scheme}://{host}"


@ThreadContext
def read_session(request: Request) -> Iterator[Read]:
    with request.app.state.database.read() as session:
        yield session


@ThreadContext
def write_session(request: Request) -> Iterator[Write]:
    with request.app.state.database.write() as session:
        team_id = request.scope.get(audit.TEAM_KEY)
        if team_id is not None:
            hold_team_from_begin(session, team_id)
        yield session
        audit.record(session, request)


@ThreadContext
def deletion_session(request: Request) -> Iterator[Write]:
    with request.app.state.database.write() as session:
        yield session
        audit.record(session, request)


def record_change(request: Request) -> Iterator[list[str]]:
    deleted_names: list[str] = []
    yield deleted_names
    with request.app.state.database.write() as session:
        session.deleted_names = deleted_names
        audit.record(session, request)


Recorded = Depends(record_change, scope="function")
"""In ``dependencies`` of a route that changes something without a `WriteSession`: records it in the audit log afterwards."""

DeletedNames = Annotated[list[str], Recorded]
"""As `Recorded`, for a route that deletes: it adds the names of what it deleted, for the audit log."""

CurrentSettings = Annotated[Settings, Depends(get_settings)]
CurrentDatabase = Annotated[Database, Depends(get_database)]
"""The database, for routes that stream or open several short transactions."""

Provider = Annotated[IdentityProvider, Depends(get_identity_provider)]
"""The identity provider. Without one, the route is refused."""

RequestedAddress = Annotated[str, Depends(get_requested_address)]
Store = Annotated[ObjectStore, Depends(get_store)]
Uploads = Annotated[Receiver, Depends(get_receiver)]
CurrentTopics = Annotated[Topics, Depends(get_topics)]

ReadSession = Annotated[Read, Depends(read_session)]
"""A route's snapshot."""

WriteSession = Annotated[Write, Depends(write_session)]
"""A route's transaction, which also records the change in the audit log. Nobody deletes the team of the address until it ends.
It is committed when the route's function returns, before the response is sent."""

TeamDeletion = Annotated[Write, Depends(deletion_session)]
"""The transaction of the route that deletes a team, which must not hold it (`lock_to_delete`)."""

IdempotencyKey = Annotated[str | None, Header()]
LastEventId = Annotated[str | None, Header()]


def _true_or_false(given: object) -> object:
    """Pydantic also reads words such as "on" and "y"; a mistyped parameter must not be a yes."""
    if given not in ("true", "false"):
        raise PydanticCustomError("bool_parsing", "Write true or false")
    return given


Flag = Annotated[bool, BeforeValidator(_true_or_false)]
"""A parameter that is ``true`` or ``false``."""


async def get_dry_run(
    request: Request, dry_run: Annotated[Flag, Query(description="Only report what would be freed.")] = False
) -> bool:
    """Whether the request is a dry run, which the audit log then leaves out."""
    if dry_run:
        audit.mark_as_unchanged(request)
    return dry_run


DryRun = Annotated[bool, Depends(get_dry_run)]
"""Whether a route only reports what it would free. The audit log then has no entry."""
