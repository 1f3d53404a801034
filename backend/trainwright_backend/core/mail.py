"""Sending mail by SMTP, if the operator has configured a server. There is no queue here: users request a lost link again, and
`teams.notice_mails` has its own.
"""

import smtplib
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import formatdate
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from trainwright_backend.core.background import run_logging_errors
from trainwright_backend.core.settings import Settings

TIMEOUT_SECONDS = 15.0


def send_mail(settings: Settings, to: str, subject: str, text: str) -> bool:
    """Send a plain-text mail. This takes seconds: call it without an open session, and preferably after the response.

    Returns:
        False if the server did not accept it; the log says why.
    """
    failure = run_logging_errors(
        lambda: deliver(settings, new_message(settings, to, subject, text)),
        "email was not sent",
        expected=(smtplib.SMTPException, OSError),
        subject=subject,
    )
    return failure is None


def new_message(settings: Settings, to: str, subject: str, text: str) -> EmailMessage:
    """A mail in plain text."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = settings.resolved_mail_from, to, subject
    message["Date"] = formatdate()
    message.set_content(text)
    return message


def deliver(
    settings: Settings, message: EmailMessage, before_data: Callable[[], None] = lambda: None
) -> None:
    """Hand a mail to the server.

    Args:
        before_data: called when the server has accepted sender and recipient, just before it gets the text. From then
            on, a broken connection does not tell whether the mail was accepted.

    Raises:
        SMTPException or OSError: the server did not accept it.
    """
    assert settings.smtp_url is not None, "the caller has checked it"
    url = urlsplit(settings.smtp_url.get_secret_value())
    host, port = url.hostname or "", url.port or 0
    with _connected(url.scheme, host, port) as connection:
        connection.before_data = before_data
        if url.scheme == "smtp":
            connection.ehlo()  # the server answers with the extensions that it supports
            if connection.has_extn("starttls"):
                connection.starttls(context=ssl.create_default_context())
            elif url.username and not _is_local(connection):
                raise smtplib.SMTPNotSupportedError(
                    f"{host} does not offer STARTTLS, so the password was not sent; use smtps:// or leave the password out"
                )
        if url.username:
            connection.login(unquote(url.username), unquote(url.password or ""))
        connection.send_message(message)


def _is_local(connection: smtplib.SMTP) -> bool:
    """Whether the server runs on this machine, so that nobody can read what is sent to it."""
    assert connection.sock is not None, "it is connected"
    return ip_address(connection.sock.getpeername()[0]).is_loopback


class _Announcing(smtplib.SMTP):
    """Calls `before_data` before it sends a mail's text."""

    before_data: Callable[[], None]

    def data(self, msg: object) -> tuple[int, bytes]:
        self.before_data()
        return super().data(msg)  # type: ignore[arg-type]  # str, or bytes-like


class _AnnouncingWithTls(_Announcing, smtplib.SMTP_SSL):
    pass


def _connected(scheme: str, host: str, port: int) -> _Announcing:
    if scheme == "smtp":
        return _Announcing(host, port, timeout=TIMEOUT_SECONDS)
    # Without an explicit context, smtplib would accept any certificate.
    return _AnnouncingWithTls(host, port, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context())
