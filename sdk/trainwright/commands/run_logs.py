"""The command that prints the log of a rank, and follows it."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from trainwright.client import TeamClient
from trainwright.commands.object_names import RunName, find_run
from trainwright.commands.terminal import LOCAL_SERVER, Key, Server, TeamSlug, err, open_team, print_error
from trainwright.contracts.run_state import FINAL
from trainwright.transport.errors import ApiError

FOLLOW_SECONDS = 2.0
"""Between two polls of a log."""

NOT_FOUND = 404
LINES_AT_ONCE = 1_000


def logs(
    run: RunName,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    attempt: Annotated[int | None, typer.Option(help="Default: the newest one.")] = None,
    rank: int = 0,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Keep printing new lines, also of later attempts, until the run ends."
        ),
    ] = False,
    timestamps: Annotated[
        bool,
        typer.Option(
            "--timestamps",
            help="Begin each line with the time (UTC) at which it arrived at the server, usually within two seconds"
            " after it was written, or with – if it is not known. Lines are cut after 10,000 characters.",
        ),
    ] = False,
) -> None:
    """Print the log of one rank."""
    with open_team(server, key, team) as api:
        run = find_run(api, run)
        number = attempt or api.run(run).attempt
        if number == 0 and not follow:
            print_error("This run has no log, because it has not started.")
            raise typer.Exit(1)
        if attempt is None and number > 1:
            hint = f"This is the log of attempt {number}, the newest. See an earlier one with --attempt {number - 1}."
            err.print(hint, soft_wrap=True)
        log = _Log(api, run, number, f"rank-{rank}.log", is_followed=follow, has_times=timestamps)
        while True:
            now = api.run_patiently(run) if follow else None  # before the log, so that its end is complete
            log.print_new()
            if now is not None and now.attempt <= log.attempt and now.state not in FINAL:
                time.sleep(FOLLOW_SECONDS)
                continue
            log.print_open_line()
            if now is None or now.attempt <= log.attempt or attempt is not None:
                return
            log = _Log(api, run, log.attempt + 1, log.file, is_followed=follow, has_times=timestamps)


@dataclass
class _Log:
    """The log of a rank in one attempt, and how much of it is printed."""

    api: TeamClient
    run: str
    attempt: int
    file: str
    is_followed: bool
    has_times: bool
    offset: int = 0
    lines: int = 0
    has_open_line: bool = False
    """The last stored line has no line feed yet."""

    def print_new(self) -> None:
        """Print what was stored since the last call; with times only complete lines."""
        while True:
            try:
                part = self.api.log_text(
                    self.run, self.attempt, self.file, self.offset, patiently=self.is_followed
                )
            except ApiError as error:
                if error.status == NOT_FOUND and self.is_followed:
                    return
                raise
            if self.has_times:
                self._print_lines(part.text.count("\n"))
            else:
                sys.stdout.write(part.text)
            sys.stdout.flush()
            self.offset = part.next_offset
            if part.text:
                self.has_open_line = not part.text.endswith("\n")
            if part.end:
                return

    def print_open_line(self) -> None:
        """Print an unfinished last line, if `print_new` did not."""
        if self.has_times and self.has_open_line:
            self._print_lines(1)

    def _print_lines(self, count: int) -> None:
        last = self.lines + count
        while self.lines < last:
            first, limit = self.lines + 1, min(last - self.lines, LINES_AT_ONCE)
            found = self.api.log_lines(
                self.run, self.attempt, self.file, first, limit, patiently=self.is_followed
            ).lines
            if not found:
                return
            for line in found:
                sys.stdout.write(f"{_timestamp(line.time)} {line.text}\n")
            self.lines += len(found)


def _timestamp(arrived: datetime | None) -> str:
    """As `docker logs` and `kubectl logs` write it: 2026-01-31T09:00:00Z."""
    return "–" if arrived is None else f"{arrived.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
