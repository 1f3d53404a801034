"""Behaviour that the launcher and its ranks share."""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

STEP_SECONDS = 0.05


class Job:
    """The fields of ``job.json`` that the stand-in uses. Words of the run's name:

    ``crash``: rank 1 exits at step 5 with code 3; ``silent``: never completes a step; ``stubborn``: ignores SIGTERM;
    ``orphan``: does not die with its parent; ``badexport``: the export fails; ``slow``: the export never ends;
    ``stopless``: ignores the stop file; ``plain``: nothing special.
    """

    def __init__(self, path: str) -> None:
        self.folder = Path(path).parent
        self.out = self.folder / "out"
        spec = json.loads(Path(path).read_text())
        self.attempt = spec["attempt"]
        self.kind = spec["kind"]
        self.ranks = len(spec["slots"])
        self.steps = spec["spec"]["schedule"]["steps"]
        self.every = spec["spec"]["checkpoint"]["every_steps"]
        self.words = spec["spec"]["name"].split()
        self.resume = (spec.get("resume") or {}).get("step", 0)

    def should_stop(self) -> bool:
        """Whether the stop file exists. Real ranks agree on a step; these stop when they see it."""
        return "stopless" not in self.words and (self.folder / "stop.json").exists()


def name_process(name: str) -> None:
    """Name the process as the trainer names its ranks."""
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)


def obey(job: Job) -> None:
    """Set up signals as the run's name demands."""
    if "orphan" not in job.words:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != int(os.environ["TRAINWRIGHT_PARENT"]):
            sys.exit(1)
    if "stubborn" in job.words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write(path: Path, content: object) -> None:
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(json.dumps(content))
    draft.rename(path)
