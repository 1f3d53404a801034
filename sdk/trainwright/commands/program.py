"""How the program as a whole behaves: a closed output, and words of other tools for its commands."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

EXIT_CODES = (
    "Exit codes: 0, it is done, also if the reader of the output went away; 1, it failed, for example because of a file, a"
    " missing key, the server, or a run that did not succeed; 2, the command line itself is wrong; 130, Ctrl-C."
)

_OTHER_WORDS = {
    "whoami": ("account show",),
    "stop": ("cancel", "runs cancel"),
    "kill": ("cancel", "runs cancel"),
    "start": ("submit", "runs submit"),
}
"""Words that people know from elsewhere, and the commands that do this, within a group and outside of it."""


class Program(TyperGroup):
    """A group of commands whose reader may go away, as `head` does: that is no error, and nothing is said about it."""

    def main(self, *args: Any, **named: Any) -> Any:
        try:
            return super().main(*args, **named)
        except SystemExit as end:
            # typer and rich end with 1 while they handle this error.
            if isinstance(end.__context__, BrokenPipeError):
                raise SystemExit(0) from None
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        meant = [
            command
            for command in _OTHER_WORDS.get(args[0], ())
            if args[0] not in self.commands and command.partition(" ")[0] in self.commands
        ]
        if meant:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant[0]!r}?")
        return super().resolve_command(ctx, args)
