"""Notices to people: who gets one, their list, and how each person wants to get them.

A notice is stored in the transaction of the change that it reports, so there is exactly one for each change. It is listed or
mailed only while the person is in its team.
"""

from collections.abc import Collection, Mapping
from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, exists, func, or_, select, update

from trainwright.contracts.api.notices import (
    OWN_RUNS,
    NoticeChoice,
    NoticeChoices,
    NoticeKind,
    NoticePage,
    NoticeSettings,
)
from trainwright.contracts.api.notices import Notice as NoticeOut
from trainwright_backend.auth.tables import Account, Membership, Team
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.ids import parse_id, public_id
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams import tables
from trainwright_backend.teams.tables import Notice

MAX_CHARACTERS = 500
MAX_MAILS_AN_HOUR = 30
"""Notices that one person gets by mail within an hour. Further ones are only listed."""


def notify_members(
    session: Write,
    kind: NoticeKind,
    team_id: UUID,
    sentence: str,
    page: str,
    *,
    only: UUID | None = None,
    besides: Collection[UUID] = (),
) -> set[UUID]:
    """Give the members of a team a notice, as each of them chose, and return who they are.

    Args:
        sentence: what happened.
        page: the team's page that says more, such as `runs/run_…`.
        only: the one member whom it concerns; nobody if that person has left the team.
        besides: people who get it anyway.
    """
    members = select(Membership.user_id).where(Membership.team_id == team_id)
    if only is not None:
        members = members.where(Membership.user_id == only)
    people = set(session.scalars(members)) - set(besides)
    slug = session.scalars(select(Team.slug).where(Team.id == team_id)).one()
    _add(session, kind, team_id, sentence, dict.fromkeys(people, f"/{slug}/{page}"))
    return people


def notify_site_admins(session: Write, kind: NoticeKind, sentence: str, page: str) -> set[UUID]:
    """Give the site admins a notice, and return who they are. ``page``: of any team, such as `nodes`."""
    slugs = (
        select(Account.id, func.min(Team.slug))
        .outerjoin(Membership, Membership.user_id == Account.id)
        .outerjoin(Team, Team.id == Membership.team_id)
        .where(Account.site_admin)
        .group_by(Account.id)
    )
    paths = {user_id: "/" if slug is None else f"/{slug}/{page}" for user_id, slug in session.execute(slugs)}
    _add(session, kind, None, sentence, paths)
    return set(paths)


def list_notices(
    session: Read, user_id: UUID, limit: int, cursor: str | None, *, unread_only: bool
) -> NoticePage:
    """A person's notices, newest first."""
    listed = select(Notice, Team.slug).outerjoin(Team, Team.id == Notice.team_id).where(*_listed(user_id))
    if unread_only:
        listed = listed.where(Notice.read.is_(None))
    if cursor is not None:
        listed = listed.where(Notice.id < parse_id("notice", cursor))
    rows = session.execute(listed.order_by(Notice.id.desc()).limit(limit + 1)).all()
    items = [_show(notice, slug) for notice, slug in rows[:limit]]
    unread = select(func.count()).where(*_listed(user_id), Notice.read.is_(None))
    return NoticePage(
        items=items,
        next_cursor=items[-1].id if len(rows) > limit else None,
        unread=session.scalar(unread) or 0,
    )


def mark_read(session: Write, user_id: UUID, ids: Collection[str] | None) -> None:
    """Mark notices of the person as read; all if ``ids`` is None. Unknown ids, and those of others, are ignored."""
    unread = select(Notice.id).where(Notice.user_id == user_id, Notice.read.is_(None))
    if ids is not None:
        unread = unread.where(Notice.id.in_([parse_id("notice", text) for text in ids]))
    locked = session.scalars(unread.order_by(Notice.id).with_for_update()).all()
    session.change(update(Notice).where(Notice.id.in_(locked)).values(read=now()))


def show_settings(session: Read, settings: Settings, user_id: UUID) -> NoticeSettings:
    """A person's choices, and whether mail can reach them."""
    account = session.get_one(Account, user_id)
    chosen = _choices(session, [user_id])
    return NoticeSettings(
        choices=[chosen[user_id, kind] for kind in NoticeKind],
        address=account.email,
        mail_problem=_mail_problem(settings, account)[1],
    )


def change_settings(session: Write, settings: Settings, user_id: UUID, new: NoticeChoices) -> NoticeSettings:
    """Store a person's choices.

    Raises:
        Conflict: `no_mail` or `address_not_verified`: they choose mail, which cannot reach them.
    """
    code, problem = _mail_problem(settings, session.get_one(Account, user_id))
    for choice in new.choices:
        if choice.mail and problem:
            raise Conflict(code, f"choices: {choice.kind} by email is not possible. {problem}")
        session.merge(
            tables.NoticeChoice(user_id=user_id, kind=choice.kind, app=choice.app, mail=choice.mail)
        )
    session.flush()
    return show_settings(session, settings, user_id)


def _mail_problem(settings: Settings, account: Account) -> tuple[str, str]:
    """Code and sentence; empty if mail can reach the account."""
    if settings.smtp_url is None:
        return "no_mail", "This installation sends no email. Its operator can set TRAINWRIGHT_SMTP_URL."
    if not account.email_verified:
        return (
            "address_not_verified",
            f"Your address {account.email} is not verified. Open a sign-in link that was mailed to it: "
            "request one on the Settings page.",
        )
    return "", ""


def _add(
    session: Write, kind: NoticeKind, team_id: UUID | None, sentence: str, paths: Mapping[UUID, str]
) -> None:
    chosen = _choices(session, paths)
    line = " ".join(sentence.split())[:MAX_CHARACTERS]
    for user_id, path in sorted(paths.items()):
        choice = chosen[user_id, kind]
        by_mail = choice.mail and _mails_of_last_hour(session, user_id) < MAX_MAILS_AN_HOUR
        if choice.app or by_mail:
            session.add(
                Notice(
                    user_id=user_id,
                    team_id=team_id,
                    kind=kind,
                    sentence=line,
                    path=path,
                    in_app=choice.app,
                    next_mail=now() if by_mail else None,
                )
            )
    session.flush()


def _choices(session: Read, user_ids: Collection[UUID]) -> dict[tuple[UUID, NoticeKind], NoticeChoice]:
    """The choices of people, those that they never made included."""
    found = {
        (user_id, kind): NoticeChoice(kind=kind, app=kind in OWN_RUNS, mail=False)
        for user_id in user_ids
        for kind in NoticeKind
    }
    stored = select(tables.NoticeChoice).where(tables.NoticeChoice.user_id.in_(list(user_ids)))
    for row in session.scalars(stored):
        kind = NoticeKind(row.kind)
        found[row.user_id, kind] = NoticeChoice(kind=kind, app=row.app, mail=row.mail)
    return found


def _mails_of_last_hour(session: Read, user_id: UUID) -> int:
    recent = Notice.mailed > now() - timedelta(hours=1)
    mailed = select(func.count()).where(Notice.user_id == user_id, or_(Notice.next_mail.is_not(None), recent))
    return session.scalar(mailed) or 0


def _listed(user_id: UUID) -> tuple[ColumnElement[bool], ...]:
    """The notices that a person sees."""
    return Notice.user_id == user_id, Notice.in_app.is_(True), is_in_team()


def is_in_team() -> ColumnElement[bool]:
    """Whether the person of a notice is in its team."""
    member = exists().where(Membership.team_id == Notice.team_id, Membership.user_id == Notice.user_id)
    return or_(Notice.team_id.is_(None), member)


def _show(row: Notice, slug: str | None) -> NoticeOut:
    return NoticeOut(
        id=public_id("notice", row.id),
        kind=NoticeKind(row.kind),
        time=row.time,
        team=slug,
        sentence=row.sentence,
        path=row.path,
        read=row.read,
    )
