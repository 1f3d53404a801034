"""Modules that the fork server imports before it forks ranks, so that their import takes seconds only once.

DeepSpeed looks for its device when it is imported; the ranks of tests run on the CPU. Where it is not
installed, the tests that need it report that themselves.
"""

import contextlib
import os

os.environ["DS_ACCELERATOR"] = "cpu"
with contextlib.suppress(ModuleNotFoundError):
    import deepspeed  # noqa: F401
