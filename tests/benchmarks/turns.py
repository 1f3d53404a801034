"""Processes in turn: each contender lives in a fresh process and makes a few steps at a time when it is told to.

Only one of them runs at any moment, in the order A-B-B-A, so that what the machine does besides meets all alike within a
fraction of a second; and none sees another's libraries, threads or heap. A contender is a function of this package that
takes a ``Request`` and calls ``Pacer.step_done`` after each of its steps, as often as it is let.

    python -m tests.benchmarks.turns MODULE FUNCTION REQUEST_JSON     one contender; obeys its standard input
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

from tests.benchmarks.trial import Shape
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.training_spec import BatchSpec


class Request(BaseModel):
    """What a contender is to do."""

    folder: Path
    """Its own, empty at first."""

    model: ModelSpec
    vocabulary: int
    batch: BatchSpec
    steps: int
    """It will make no more of them."""

    threads: int
    options: dict[str, str | int] = {}
    """What only some contenders understand."""

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
    """A function of a module of this package, and the Python that runs it."""

    module: str
    function: str
    python: str = sys.executable


class Pacer:
    """Stands in a contender's loop; the time between two calls, without the waiting, is a step's."""

    def __init__(self) -> None:
        # What libraries print would be mixed up with the answers.
        self._answers = os.fdopen(os.dup(1), "w")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        self._left = 0
        self._spent: list[tuple[float, float]] = []
        self._began = (0.0, 0.0)

    def start(self) -> None:
        """The first step is about to begin."""
        self._wait()

    def begin(self) -> None:
        """What was done since the last step is not part of the next one."""
        self._began = (time.perf_counter(), time.process_time())

    def step_done(self, tidy: Callable[[], object] = lambda: None) -> None:
        """A step has ended; ``tidy`` is done before another contender's turn and counts for nobody."""
        wall, cpu = time.perf_counter(), time.process_time()
        tidy()
        self._spent.append((wall - self._began[0], cpu - self._began[1]))
        self._left -= 1
        if not self._left:
            print(json.dumps(self._spent), file=self._answers, flush=True)
            self._wait()
        self.begin()

    def _wait(self) -> None:
        """Until the next steps are asked for; the process ends where no more will be."""
        self._spent = []
        told = sys.stdin.readline()
        if not told:
            _leave()
        self._left = int(told)
        self.begin()


def _leave() -> NoReturn:
    # A loop that is left in its middle has threads and handlers that nobody waits for.
    os._exit(0)


def in_turn(
    contenders: Mapping[str, Contender],
    request: Request,
    warm_up: int,
    rounds: int,
    steps: int = 1,
    options: Mapping[str, Mapping[str, str | int]] | None = None,
) -> dict[str, Spent]:
    """Let each make ``warm_up`` steps, then ``rounds`` times ``steps`` there and back again.

    Returns what the timed steps took, 2 · rounds · steps of each.
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
        command = [contender.python, "-m", "tests.benchmarks.turns", contender.module, contender.function]
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
        """Seconds of these steps, wall and CPU."""
        asked, answers = _pipe(self._process.stdin), _pipe(self._process.stdout)
        try:
            print(steps, file=asked, flush=True)
        except BrokenPipeError as error:
            raise RuntimeError(self._ended()) from error
        answer = answers.readline()
        if not answer:
            raise RuntimeError(self._ended())
        made: list[tuple[float, float]] = json.loads(answer)
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
