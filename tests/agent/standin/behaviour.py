"""What the launcher and its ranks share."""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

STEP_SECONDS = 0.05


class Job:
    """The parts of ``job.json`` that the stand-in goes by. Words of the run's name:

    ``crash`` rank 1 leaves at step 5 with code 3; ``silent`` never makes a step; ``stubborn`` ignores SIGTERM;
    ``orphan`` does not die with its parent; ``badexport`` the export fails; ``slow`` it never ends; ``deaf`` does not
    look for the stop file; ``plain`` nothing special.
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

    def is_to_leave(self) -> bool:
        """Somebody asks this rank to save and leave. The real ones agree on a step; these leave when they see it."""
        return "deaf" not in self.words and (self.folder / "stop.json").exists()


def obey(job: Job) -> None:
    """Take the signals as the run's name says."""
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
