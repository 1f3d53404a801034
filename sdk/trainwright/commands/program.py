"""How the program as a whole behaves: a closed output, and words of other tools for its commands.

Whoever reads stdout or stderr may go away, as `head` does. Without stderr, a command does the same and ends with the same exit
code. Without stdout, it ends at once and with 0, except where its exit code says more (`continues_without_reader`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from typer.core import TyperGroup

EXIT_CODES = (
    "Exit codes: 0, success, also if the output is closed early, as by `head`; 1, failure, for example because of a file, a"
    " missing key, the server, or a run that did not succeed; 2, invalid command line; 130, interrupted by Ctrl-C."
)

_OTHER_WORDS = {
    "whoami": ("account show",),
    "stop": ("cancel", "runs cancel"),
    "kill": ("cancel", "runs cancel"),
    "start": ("submit", "runs submit"),
}
"""Words that people know from elsewhere, and the commands that do this, within a group and outside of it."""


_MAX_ALTERNATIVES = 4


class Program(TyperGroup):
    """A group of commands whose output may be closed early: that is not an error, and nothing is printed about it."""

    def main(self, *args: Any, **named: Any) -> Any:
        try:
            with _stderr_without_reader():
                return super().main(*args, **named)
        except SystemExit as end:
            # typer and rich end with 1 while they handle this error, which is stdout's: stderr raises none.
            closed = end.__context__
            if isinstance(closed, BrokenPipeError) and closed.__context__ is None:
                raise SystemExit(0) from None
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        meant = [
            command
            for command in _OTHER_WORDS.get(args[0], ())
            if args[0] not in self.commands and command.partition(" ")[0] in self.commands
        ]
        if not meant and args[0] not in self.commands:
            groups = [(name, group) for name, group in self.commands.items() if isinstance(group, TyperGroup)]
            meant = [f"{name} {args[0]}" for name, group in groups if args[0] in group.commands]
        if meant:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {_alternatives(meant)}?")
        return super().resolve_command(ctx, args)


def _alternatives(commands: list[str]) -> str:
    """`'runs list'`, `'runs list' or 'nodes list'`; of many the first few."""
    quoted = [repr(command) for command in commands[:_MAX_ALTERNATIVES]]
    if len(commands) > _MAX_ALTERNATIVES:
        return f"{', '.join(quoted)} or another"
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted)


@contextmanager
def continues_without_reader() -> Iterator[None]:
    """For output with `typer.echo` before work or a check that decides the exit code."""
    try:
        yield
    except BrokenPipeError:
        _discard(sys.stdout)


@contextmanager
def _stderr_without_reader() -> Iterator[None]:
    original = sys.stderr
    if original is not None:  # closed by the shell
        sys.stderr = cast(TextIO, _Stderr(original))
    try:
        yield
    finally:
        sys.stderr = original


class _Stderr:
    """Discards what is written once nobody reads it. Without this, an error that cannot be printed would replace the exit code;
    rich would also discard stdout.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            _discard(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            _discard(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _discard(stream: TextIO) -> None:
    """Lead to nowhere what is written, and what is buffered, which Python writes when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
