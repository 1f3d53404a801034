"""A terminal in which a test types commands: one shell that keeps its variables and folder, and programs in terminals beside it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.1


class CommandError(Exception):
    """A command failed or took too long. The message has its output."""


@dataclass(frozen=True)
class Program:
    """A program that runs until Ctrl-C, in a terminal of its own."""

    command: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, seconds: float) -> None:
        """Raises:
        CommandError: the program has ended, or did not print ``text`` in time.
        """
        deadline = time.monotonic() + seconds
        while text not in self.output:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise CommandError(f"{self.command}: never printed {text!r}\n{self.output}")
            time.sleep(POLL_SECONDS)

    def press_ctrl_c(self, seconds: float = 180.0) -> None:
        """Interrupt all its processes, as a terminal does, and wait for its end."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(seconds)


class Terminal:
    """A shell in ``folder``."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._private = folder.with_name(f"{folder.name}.terminal")
        self._private.mkdir()
        folder.mkdir(exist_ok=True)
        self._log = (self._private / "output").open("w+")
        self._count = 0
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-o", "pipefail"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._programs: list[Program] = []

    def run(
        self, command: str, seconds: float = 900.0, watch: Callable[[str], None] = lambda output: None
    ) -> str:
        """Type ``command``, wait for its end, and return what it printed. ``watch`` sees the output meanwhile.

        Raises:
            CommandError: it failed or did not end in time.
        """
        self._count += 1
        source, ended = self._private / f"{self._count}.sh", self._private / f"{self._count}.code"
        source.write_text(command)
        assert self._shell.stdin is not None
        start = os.fstat(self._log.fileno()).st_size
        self._shell.stdin.write(
            f". '{source}' </dev/null; echo $? > '{ended}.new'; mv '{ended}.new' '{ended}'\n"
        )
        self._shell.stdin.flush()
        deadline = time.monotonic() + seconds
        while not ended.exists():
            if self._shell.poll() is not None or time.monotonic() > deadline:
                self._kill_shell()  # a shell that still runs a command cannot take another
                raise CommandError(f"{command.strip()}: no end\n{self._printed_since(start)}")
            watch(self._printed_since(start))
            time.sleep(POLL_SECONDS)
        printed = self._printed_since(start)
        if (code := ended.read_text().strip()) != "0":
            raise CommandError(f"{command.strip()}: exit code {code}\n{printed}")
        return printed

    def start(self, command: str) -> Program:
        """Run ``command`` in a terminal beside this one, with the same folder and variables, until Ctrl-C."""
        log = self._private / f"program-{len(self._programs)}.log"
        state = self._private / "environment"
        self.run(f"env --null > '{state}'; pwd > '{state}.folder'")
        pairs = (pair.partition("=") for pair in state.read_text().split("\0") if pair)
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=state.with_name("environment.folder").read_text().strip(),
                env={name: value for name, _, value in pairs},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        program = Program(command, process, log)
        self._programs.append(program)
        return program

    def running_programs(self) -> list[Program]:
        """Those that have not ended, the newest last."""
        return [program for program in self._programs if program.process.poll() is None]

    def close(self) -> None:
        """End the shell and all programs."""
        for program in reversed(self.running_programs()):
            program.press_ctrl_c()
        self._kill_shell()
        self._log.close()

    def _kill_shell(self) -> None:
        """End the shell and the command that it runs."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()

    def _printed_since(self, start: int) -> str:
        return (self._private / "output").read_bytes()[start:].decode(errors="replace")


@contextmanager
def open_terminal(folder: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(folder, environment)
    try:
        yield terminal
    finally:
        terminal.close()


def split_commands(text: str) -> list[str]:
    """The commands of a block, one for each time that a reader would press Enter and wait. bash decides where one ends."""
    commands: list[str] = []
    pending = ""
    for line in text.splitlines(keepends=True):
        pending += line
        if pending.strip() and not pending.endswith("\\\n") and _is_complete(pending):
            commands.append(pending)
            pending = ""
    if pending.strip():
        raise CommandError(f"bash cannot read this: {pending}")
    return [command for command in commands if not command.lstrip().startswith("#")]


def _is_complete(source: str) -> bool:
    """Without complaint; of an open here-document bash only warns."""
    checked = subprocess.run(["bash", "-n"], input=source, capture_output=True, text=True)
    return checked.returncode == 0 and not checked.stderr
