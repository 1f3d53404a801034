"""Sign-in links by mail. Only the owner of the address can open one, so it confirms the address and can set a new password.

The response to a request is the same whether or not the address has an account, and it is sent before the mail.
"""

from threading import BoundedSemaphore

import structlog

from trainwright_backend.auth.passwords import count_mail
from trainwright_backend.auth.service import account_by_email, normal_email
from trainwright_backend.core.db import Database
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.mail import send_mail
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams.one_time_link_rows import MAILED_LIFETIME
from trainwright_backend.teams.one_time_links import sign_in_link

MAILS_AT_ONCE = BoundedSemaphore(4)
"""Each mail takes one of the server's threads for some seconds. Above this number mails are dropped; users can ask again."""

SUBJECT = "Your sign-in link for Trainwright"

TEXT = """\
Open this link to sign in to Trainwright as {email}:

{link}

The link works once and expires after one hour. On its page you can
set a new password, which signs out all other sessions and revokes
your API keys.

If your address has not been confirmed yet, open the link in a browser
in which you are signed in, or set a new password.

If you did not request this email, you can ignore it.
"""

log = structlog.get_logger()


def check_request(database: Database, settings: Settings, email: str) -> None:
    """Count a request for a link.

    Raises:
        Conflict: the installation sends no email.
        AppError: 429, too many were requested for this address.
    """
    if settings.smtp_url is None:
        raise Conflict(
            "no_mail",
            "This installation sends no email. Ask its operator for a sign-in link "
            "(`trainwright-server link sign-in` with your address).",
        )
    count_mail(database, settings, email)


def mail_link(database: Database, settings: Settings, email: str) -> None:
    """Send a sign-in link to ``email`` if it has an account."""
    with database.write() as session:
        if account_by_email(session, email) is None:
            return
        link = sign_in_link(session, settings, email, MAILED_LIFETIME)
    address = normal_email(email)
    text = TEXT.format(email=address, link=link.url)
    if not MAILS_AT_ONCE.acquire(blocking=False):
        log.warning("an email was dropped: too many are being sent")
        return
    try:
        send_mail(settings, address, SUBJECT, text)
    finally:
        MAILS_AT_ONCE.release()
