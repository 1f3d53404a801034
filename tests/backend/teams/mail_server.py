"""A mail server for tests, which stores the mails that it receives."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message


class Mailbox(socketserver.ThreadingTCPServer):
    """The part of SMTP that a client needs to send plain-text mails."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.received: list[Message] = []
        self.verbs: list[str] = []
        """Commands of all clients, in order."""
        self.offers_tls = False
        """Whether the server announces STARTTLS. It refuses the command in any case."""
        self.offers_password = False
        """Whether the server asks for a password, and accepts any."""

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.server_address[1]}"

    def links_to(self, email: str) -> list[str]:
        """The tokens of the links that were sent to ``email``."""
        bodies = [mail.get_payload(decode=True) for mail in self.received if mail["To"] == email]
        texts = [body.decode() for body in bodies if isinstance(body, bytes)]
        return [line.rsplit("/", 1)[-1] for text in texts for line in text.split() if "/link/" in line]


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        mailbox = self.server
        assert isinstance(mailbox, Mailbox)
        self._reply(220)
        while line := self.rfile.readline():
            verb = line.split()[0].upper()
            mailbox.verbs.append(verb.decode())
            if verb == b"EHLO" and mailbox.offers_tls:
                self.wfile.write(b"250-mail.example\r\n250 STARTTLS\r\n")
                continue
            if verb == b"EHLO" and mailbox.offers_password:
                self.wfile.write(b"250-mail.example\r\n250 AUTH PLAIN\r\n")
                continue
            codes = {b"DATA": 354, b"QUIT": 221, b"STARTTLS": 454, b"AUTH": 235}
            self._reply(codes.get(verb, 250))
            if verb == b"DATA":
                lines = iter(self.rfile.readline, b".\r\n")
                mailbox.received.append(message_from_bytes(b"".join(lines)))
                self._reply(250)

    def _reply(self, code: int) -> None:
        self.wfile.write(f"{code} fine\r\n".encode())


@contextmanager
def running_mailbox() -> Iterator[Mailbox]:
    """A mail server in a thread of this process."""
    with Mailbox() as mailbox:
        thread = threading.Thread(target=mailbox.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield mailbox
        finally:
            mailbox.shutdown()
            thread.join()
