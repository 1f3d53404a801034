"""Sending mail by SMTP, if the operator has configured a server. There is no queue: users request a lost mail again."""

import smtplib
import ssl
from email.message import EmailMessage
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
        lambda: _deliver(settings, to, subject, text),
        "mail was not sent",
        expected=(smtplib.SMTPException, OSError),
        subject=subject,
    )
    return failure is None


def _deliver(settings: Settings, to: str, subject: str, text: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = settings.resolved_mail_from, to, subject
    message.set_content(text)
    assert settings.smtp_url is not None, "the caller has checked it"
    url = urlsplit(settings.smtp_url.get_secret_value())
    host, port = url.hostname or "", url.port or 0
    with _connected(url.scheme, host, port) as connection:
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


def _connected(scheme: str, host: str, port: int) -> smtplib.SMTP:
    if scheme == "smtp":
        return smtplib.SMTP(host, port, timeout=TIMEOUT_SECONDS)
    # Without an explicit context, smtplib would accept any certificate.
    return smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context())
