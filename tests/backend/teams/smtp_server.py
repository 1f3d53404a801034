"""A real SMTP server in a thread, which stores the mails that it accepts, and refuses or drops those that a test chooses."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage

from aiosmtpd.smtp import SMTP, Envelope, Session

ACCEPT = "250 accepted"
TRY_LATER = "451 try again later"
DROP = "drop the connection after the text"


class SmtpServer:
    """What the server does and got."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.next: list[str] = []
        """Its responses to the next texts; afterwards it accepts them."""
        self.unknown: set[str] = set()
        """Recipients that it refuses."""
        self.url = ""

    async def handle_RCPT(  # noqa: N802  # the server looks for this name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.unknown:
            return "550 no such person"
        envelope.rcpt_tos.append(address)
        return ACCEPT

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        response = self.next.pop(0) if self.next else ACCEPT
        if response in (ACCEPT, DROP):
            assert isinstance(envelope.content, bytes)
            mail = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(mail, EmailMessage)
            self.mails.append(mail)
        if response == DROP:
            assert server.transport is not None
            server.transport.abort()
        return response


@contextmanager
def running_smtp_server() -> Iterator[SmtpServer]:
    handler, loop = SmtpServer(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen() -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(lambda: SMTP(handler), "127.0.0.1", 0)

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    handler.url = f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield handler
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
