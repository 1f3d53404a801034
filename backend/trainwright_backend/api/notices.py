"""The caller's notices, and how they want to get them."""

from typing import Annotated

from fastapi import Query

from trainwright.contracts.api.notices import (
    MAX_NOTICES,
    NoticeChoices,
    NoticePage,
    NoticeSettings,
    ReadNotices,
)
from trainwright_backend.api.dependencies import CurrentSettings, Flag, ReadSession, WriteSession
from trainwright_backend.auth.policies import SignedIn
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.teams import notices

router = ResourceRouter(prefix="/me/notices", tags=["notices"], route_class=GuardedRoute)


@router.get("")
def list_notices(
    person: SignedIn,
    session: ReadSession,
    unread: Annotated[Flag, Query(description="Only those that you have not read.")] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_NOTICES)] = 50,
    cursor: Annotated[str | None, Query(max_length=80)] = None,
) -> NoticePage:
    """Your notices, newest first, with the number of those that you have not read."""
    return notices.list_notices(session, person.user_id, limit, cursor, unread_only=unread)


@router.post("/read", status_code=204)
def mark_notices_read(given: ReadNotices, person: SignedIn, session: WriteSession) -> None:
    """Mark notices as read. Ids that you have no notice for are ignored."""
    notices.mark_read(session, person.user_id, given.ids)


@router.get("/settings")
def get_notice_settings(person: SignedIn, session: ReadSession, settings: CurrentSettings) -> NoticeSettings:
    """Which notices you get, in the app and by mail."""
    return notices.show_settings(session, settings, person.user_id)


@router.put("/settings")
def change_notice_settings(
    new: NoticeChoices, person: SignedIn, session: WriteSession, settings: CurrentSettings
) -> NoticeSettings:
    """Choose which notices you get, in the app and by mail. Kinds that you leave out do not change."""
    return notices.change_settings(session, settings, person.user_id, new)
