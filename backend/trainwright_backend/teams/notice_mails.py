"""Mailing notices, in a thread of each API process.

A notice is claimed by moving its next mail, in a transaction of its own, so no two processes mail it at once; after a crash
another attempt follows. Just before the text is handed to the mail server, the claim is given up for good: whatever happens
then, the notice is not mailed twice. It is lost if the connection breaks at that moment, and is still listed in the app.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.message import EmailMessage
from smtplib import SMTPException, SMTPRecipientsRefused, SMTPResponseException
from textwrap import shorten
from uuid import UUID

import structlog
from sqlalchemy import delete, func, select, update

from trainwright.contracts.api.notices import MAX_NOTICES
from trainwright_backend.auth.tables import Account
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.ids import public_id
from trainwright_backend.core.mail import deliver, new_message
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams.notices import is_in_team
from trainwright_backend.teams.tables import Notice

PAUSES = tuple(timedelta(seconds=seconds) for seconds in (30, 300, 1_800, 7_200, 18_000, 36_000))
"""Between attempts. After the last one a mail is given up."""
CLAIM = timedelta(minutes=5)
"""Longer than an attempt takes until the text is handed over."""
NEWS = timedelta(days=2)
"""Older notices are no longer mailed, for example if the operator sets a mail server later."""
MAX_AT_ONCE = 50

LOST = "The connection broke while the email was handed over. It may have arrived, so it is not sent again."
WITHOUT_RIGHT = "Its address is not verified, or the person has left the team."

TEXT = """\
{sentence}

{link}

You get this email because you chose emails for notices of this kind.
Change that under Notices on your Settings page.
"""

log = structlog.get_logger()


@dataclass(frozen=True)
class Mail:
    """A claimed notice."""

    id: UUID
    claimed_until: datetime
    attempts: int
    """This one included."""
    message: EmailMessage


class ClaimLostError(SMTPException):
    """Another process has claimed the notice meanwhile."""


def mail_due(database: Database, settings: Settings) -> Iterator[UUID]:
    """Attempt each mail that is due, once; yields the id of its notice after each, so that the caller can stop in between."""
    if settings.smtp_url is None:
        return
    with database.read() as session:
        due = select(Notice.id).where(Notice.next_mail <= now())
        ids = session.scalars(due.order_by(Notice.id).limit(MAX_AT_ONCE)).all()
    for notice_id in ids:
        mail = _claim(database, settings, notice_id)
        if mail is not None:
            _attempt(database, settings, mail)
        yield notice_id


def delete_old(database: Database) -> None:
    """Delete the notices of each person beyond the newest, and forget mails that are no longer news."""
    with database.read() as session:
        many = select(Notice.user_id).group_by(Notice.user_id).having(func.count() > MAX_NOTICES)
        people = session.scalars(many).all()
    for user_id in people:
        with database.write() as session:
            mine = select(Notice.id).where(Notice.user_id == user_id)
            newest = mine.order_by(Notice.id.desc()).limit(MAX_NOTICES)
            old = mine.where(Notice.id < min(session.scalars(newest))).order_by(Notice.id).with_for_update()
            session.execute(delete(Notice).where(Notice.id.in_(session.scalars(old).all())))
    with database.write() as session:
        late = update(Notice).where(Notice.next_mail.is_not(None), Notice.time < now() - NEWS)
        session.change(late.values(next_mail=None, mail_error="It was too old to be mailed."))


def _claim(database: Database, settings: Settings, notice_id: UUID) -> Mail | None:
    """Take a notice that is still due; None if there is nothing to mail."""
    until = now() + CLAIM
    taken = {"next_mail": until, "mail_attempts": Notice.mail_attempts + 1}
    due = (Notice.id == notice_id, Notice.next_mail <= now())
    with database.write() as session:
        if not session.change(update(Notice).where(*due).values(**taken)):
            return None
        permitted = (
            select(Notice, Account)
            .join(Account, Account.id == Notice.user_id)
            .where(Notice.id == notice_id, Account.email_verified, is_in_team())
        )
        row = session.execute(permitted.execution_options(populate_existing=True)).one_or_none()
        if row is None:
            forget = {"next_mail": None, "mail_error": WITHOUT_RIGHT}
            session.change(update(Notice).where(Notice.id == notice_id).values(**forget))
            return None
        notice, account = row
        return Mail(notice.id, until, notice.mail_attempts, _message(settings, notice, account.email))


def _message(settings: Settings, notice: Notice, address: str) -> EmailMessage:
    link = f"{settings.public_url.rstrip('/')}{notice.path}"
    text = TEXT.format(sentence=notice.sentence, link=link)
    message = new_message(settings, address, f"Trainwright: {shorten(notice.sentence, 100)}", text)
    message["Message-ID"] = f"<{public_id('notice', notice.id)}@{message['From'].rpartition('@')[2]}>"
    return message


def _attempt(database: Database, settings: Settings, mail: Mail) -> None:
    is_handed_over = False

    def hand_over() -> None:
        nonlocal is_handed_over
        mine = (Notice.id == mail.id, Notice.next_mail == mail.claimed_until)
        with database.write() as session:
            if not session.change(update(Notice).where(*mine).values(next_mail=None, mail_error=LOST)):
                raise ClaimLostError("another process sends this mail")
        is_handed_over = True

    try:
        deliver(settings, mail.message, before_data=hand_over)
    except ClaimLostError:
        return
    except (SMTPException, OSError) as failure:
        log.warning("notice was not mailed", notice=str(mail.id), error=str(failure))
        if is_handed_over and not isinstance(failure, SMTPResponseException):
            return  # nobody knows whether it arrived
        values = _after_failure(mail, failure)
    else:
        values = {"mailed": now(), "mail_error": ""}
    with database.write() as session:
        session.change(update(Notice).where(Notice.id == mail.id).values(**values))


def _after_failure(mail: Mail, failure: Exception) -> dict[str, object]:
    """When to try again after a failure before which nothing was mailed; never after the last attempt."""
    gives_up = mail.attempts > len(PAUSES) or _is_unknown_recipient(failure)
    next_mail = None if gives_up else now() + PAUSES[mail.attempts - 1]
    return {"next_mail": next_mail, "mail_error": str(failure)[:300]}


def _is_unknown_recipient(failure: Exception) -> bool:
    """Whether the server refused the address for good."""
    if not isinstance(failure, SMTPRecipientsRefused):
        return False
    return all(500 <= code < 600 for code, _ in failure.recipients.values())
