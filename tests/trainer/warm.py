"""What ranks are to find imported when they are forked: seconds of work, made once.

DeepSpeed looks for its device when it is imported, and ranks of tests are on the CPU. Where it is not installed, tests
that need it say so themselves.
"""

import contextlib
import os

import trainwright_trainer.loop
import trainwright_trainer.parallel.pipeline.passes  # noqa: F401

os.environ["DS_ACCELERATOR"] = "cpu"
with contextlib.suppress(ModuleNotFoundError):
    import deepspeed  # noqa: F401
