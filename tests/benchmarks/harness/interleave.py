"""Interleaved timing: each contender runs in a fresh process and performs a few steps at a time on request.

Only one contender runs at any moment, in the order A-B-B-A, so that other load on the machine affects all of them equally,
and none shares libraries, threads or a heap with another. A contender is a function of this package that takes a
``Request`` and calls ``Pacer.step_done`` after each of its steps, until its process is ended.

    python -m tests.benchmarks.harness.interleave MODULE FUNCTION REQUEST_JSON     one contender, controlled by its standard input
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import IO, Any, NoReturn

from pydantic import BaseModel

from tests.benchmarks.trainer.timed_training import Shape
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.training_spec import BatchSpec


class Request(BaseModel):
    """The task of a contender."""

    folder: Path
    """The contender's own folder, empty at first."""

    model: ModelSpec
    vocabulary: int
    batch: BatchSpec
    steps: int
    """An upper bound."""

    threads: int
    options: dict[str, str | int] = {}
    """Settings of particular contenders."""

    @property
    def shape(self) -> Shape:
        return Shape(self.model, self.vocabulary, self.batch)


@dataclass
class Spent:
    """Seconds of each timed step."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Of all threads of the process."""

    def wall_median(self) -> float:
        return median(self.wall)

    def cpu_median(self) -> float:
        return median(self.cpu)


@dataclass(frozen=True)
class Contender:
    """A function of this package, and the interpreter that runs it."""

    module: str
    function: str
    python: str = sys.executable


class Pacer:
    """Times the steps of a contender's loop: the time between two calls, without the wait, is one step."""

    def __init__(self) -> None:
        # Output of libraries must not mix with the responses.
        self._answers = os.fdopen(os.dup(1), "w")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        self._left = 0
        self._spent: list[tuple[float, float]] = []
        self._began = (0.0, 0.0)

    def start(self) -> None:
        """Wait for the request for the first steps."""
        self._wait()

    def begin(self) -> None:
        """Exclude what was done since the last step."""
        self._began = (time.perf_counter(), time.process_time())

    def step_done(self, clean_up: Callable[[], object] = lambda: None) -> None:
        """Record a step. ``clean_up`` runs before the next contender's turn and is not timed."""
        wall, cpu = time.perf_counter(), time.process_time()
        clean_up()
        self._spent.append((wall - self._began[0], cpu - self._began[1]))
        self._left -= 1
        if not self._left:
            print(json.dumps(self._spent), file=self._answers, flush=True)
            self._wait()
        self.begin()

    def _wait(self) -> None:
        """Wait for the next request; without one, the process ends."""
        self._spent = []
        request = sys.stdin.readline()
        if not request:
            _exit()
        self._left = int(request)
        self.begin()


def _exit() -> NoReturn:
    # An interrupted loop has threads and handlers that must not delay the exit.
    os._exit(0)


def in_turn(
    contenders: Mapping[str, Contender],
    request: Request,
    warm_up: int,
    rounds: int,
    steps: int = 1,
    options: Mapping[str, Mapping[str, str | int]] | None = None,
) -> dict[str, Spent]:
    """Let each contender make ``warm_up`` steps; then, ``rounds`` times, ``steps`` each in order and in reverse order.

    Returns the times of 2 · rounds · steps steps of each.
    """
    names, spent = list(contenders), {name: Spent() for name in contenders}
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(_Process(contender, _own(request, name, options)))
            for name, contender in contenders.items()
        }
        for name in names:
            running[name].make(warm_up)
        for _ in range(rounds):
            for name in [*names, *reversed(names)]:
                for wall, cpu in running[name].make(steps):
                    spent[name].wall.append(wall)
                    spent[name].cpu.append(cpu)
    return spent


def _own(request: Request, name: str, options: Mapping[str, Mapping[str, str | int]] | None) -> Request:
    folder = request.folder / name
    folder.mkdir(parents=True)
    return request.model_copy(update={"folder": folder, "options": dict((options or {}).get(name, {}))})


class _Process:
    def __init__(self, contender: Contender, request: Request) -> None:
        self._name = f"{contender.module}.{contender.function}"
        command = [
            contender.python,
            "-m",
            "tests.benchmarks.harness.interleave",
            contender.module,
            contender.function,
        ]
        self._process = subprocess.Popen(
            [*command, request.model_dump_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(request.threads)},
        )

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        _pipe(self._process.stdin).close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _pipe(self._process.stdout).close()

    def make(self, steps: int) -> list[tuple[float, float]]:
        """Wall and CPU seconds of each step."""
        asked, responses = _pipe(self._process.stdin), _pipe(self._process.stdout)
        try:
            print(steps, file=asked, flush=True)
        except BrokenPipeError as error:
            raise RuntimeError(self._ended()) from error
        response = responses.readline()
        if not response:
            raise RuntimeError(self._ended())
        made: list[tuple[float, float]] = json.loads(response)
        return made

    def _ended(self) -> str:
        return f"{self._name} ended with code {self._process.wait(30)}"


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def main(arguments: Sequence[str]) -> None:
    module, function, request = arguments
    contend: Any = getattr(import_module(module), function)
    contend(Request.model_validate_json(request), Pacer())


if __name__ == "__main__":
    main(sys.argv[1:])
