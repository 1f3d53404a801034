"""A reader who follows a page: types its commands in order, puts in what the page leaves open, and uses the browser when told to.

What the page leaves open: ids such as `run_…`, which an earlier command printed; the port of the server, because other
programs may use the usual one. The reader opens a second terminal for programs that run until Ctrl-C, and presses Ctrl-C in
the newest one where the page says so.
"""

import os
import re
import secrets
import shlex
import time
from pathlib import Path

from tests.docs.pages import LANGUAGES, Block
from tests.docs.terminal import CommandError, Terminal, split_commands
from tests.live import store_cpu_peak
from trainwright.client import Client
from trainwright.contracts.api.people import OneTimeLink
from trainwright_backend.local.platform import bind_socket

USUAL_ADDRESS = "http://127.0.0.1:8000"
SERVER = re.compile(r"^(\S*/)?trainwright-server up\b")
AGENT = re.compile(r"^(\S*/)?trainwright-agent run\b")
JOIN = re.compile(r"^(\S*/)?trainwright-agent join\b")
LOGIN = re.compile(r"^trainwright login\b")
ID = re.compile(r"\b(ds|run|ckpt)_([0-9A-Za-z]+)\b")
PLACEHOLDER = re.compile(r"\b(ds|run|ckpt)_…")
COMMENT = re.compile(r"  +# .*$", re.MULTILINE)
START_SECONDS = 300.0

TEAM = "my-team"

NOT_RUN = {
    "make demo": "builds and trains for minutes; tests/integration/test_demo.py runs it",
    "make setup frontend": "installs from the network; `make wheel-check` does so",
}
"""Commands of pages that are run otherwise, with the reason why a test does not run them."""


class Reader:
    """Follows pages in one terminal. The platform that a page starts runs until the end, or until the page stops it."""

    def __init__(self, terminal: Terminal, folder: Path) -> None:
        self._terminal = terminal
        self._folder = folder
        self._newest: dict[str, str] = {}
        self._seen: set[str] = set()
        self._browser: Client | None = None
        with bind_socket("127.0.0.1", 0) as free:
            self.address = f"http://127.0.0.1:{free.getsockname()[1]}"
        terminal.run(f"export TRAINWRIGHT_SERVER={self.address}")

    def follow(self, block: Block) -> None:
        """Do what the prose before the block and the block itself say.

        Raises:
            CommandError: a command failed; the message names its page and line.
        """
        if "Ctrl-C" in block.prose:
            self._terminal.running_programs()[-1].press_ctrl_c()
        try:
            for command in commands_of(block):
                if why_not_run(command) is None:
                    begin = time.monotonic()
                    self._type(self._filled_in(command))
                    print(f"{time.monotonic() - begin:6.1f} s  {block.place}  {command.splitlines()[0]}")
        except CommandError as error:
            raise CommandError(f"{block.place}: {error}") from error

    def type_as_printed(self, command: str) -> None:
        """Type the command, with `ds_…` and the like."""
        self._see(self._terminal.run(command))

    def close(self) -> None:
        if self._browser is not None:
            self._browser.close()

    def _type(self, command: str) -> None:
        if SERVER.match(command):
            self._start_server(command)
        elif AGENT.match(command):
            self._terminal.start(command)
        elif LOGIN.match(command):
            self._see(self._terminal.run(command, watch=self._approve))
        else:
            if JOIN.match(command):  # as for the server's node
                data = _made(self._folder / _option(command, "--data", ""))
                store_cpu_peak(data, int(_option(command, "--cpu-slots", "2")))
            self._see(self._terminal.run(command))

    def _start_server(self, command: str) -> None:
        """Start it at a free port, and create the first account in the browser if it prints a link for it."""
        port = self.address.rpartition(":")[2]
        data = self._folder / _option(command, "--data", ".trainwright/main")
        # Measuring the CPU takes long; a later start of the platform finds the result too.
        store_cpu_peak(_made(data) / "agent", int(_option(command, "--cpu-slots", "2")))
        words, _, comment = command.partition(" #")
        program = self._terminal.start(f"{words.rstrip()} --port {port} #{comment}")
        program.wait_for("The logs of", START_SECONDS)
        link = re.search(r"Create the first account: \S+/(\S+)", program.output)
        if link is not None:
            self._browser = Client(self.address)
            password = secrets.token_urlsafe(16)
            account = {"name": "Ada", "email": "ada@example.org", "password": password, "team": TEAM}
            self._browser.use_link(OneTimeLink(token=link[1], **account))

    def _approve(self, output: str) -> None:
        """Enter the code that `login` shows on the browser's page."""
        code = re.search(r"^    (\S+)$", output, re.MULTILINE)
        if code is not None and self._newest.get("code") != code[1]:
            self._newest["code"] = code[1]
            assert self._browser is not None
            self._browser.decide_device_login(code[1], approve=True)

    def _see(self, output: str) -> None:
        """Remember the newest ids. A list may end with older ones."""
        for found in ID.finditer(output):
            if found[0] not in self._seen:
                self._seen.add(found[0])
                self._newest[found[1]] = found[0]

    def _filled_in(self, command: str) -> str:
        def newest(placeholder: re.Match[str]) -> str:
            if placeholder[1] not in self._newest:
                raise CommandError(f"{command.strip()}: no earlier command printed a {placeholder[0]}")
            return self._newest[placeholder[1]]

        without_comments = COMMENT.sub("", command.replace(USUAL_ADDRESS, self.address))
        return PLACEHOLDER.sub(newest, without_comments)


def commands_of(block: Block) -> list[str]:
    """What a reader types for the block: nothing for a file that is only shown."""
    match LANGUAGES.get(block.language):
        case "bash":
            return split_commands(block.text)
        case "python":
            return [f"python - <<'END-OF-BLOCK'\n{block.text}END-OF-BLOCK\n"]
        case _:
            return []


def why_not_run(command: str) -> str | None:
    """The reason why a test leaves the command out; None if it runs it."""
    return next((reason for start, reason in NOT_RUN.items() if command.startswith(start)), None)


def reader_environment(repository: Path, home: Path) -> dict[str, str]:
    """The variables of a fresh terminal of a user with an empty home."""
    kept = ("PATH", "LANG", "TMPDIR", "OMP_NUM_THREADS")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return environment | {"HOME": str(home), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}


def _option(command: str, name: str, default: str) -> str:
    words = shlex.split(command, comments=True)
    return words[words.index(name) + 1] if name in words else default


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
