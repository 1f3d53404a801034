"""Modules that the fork server imports before it forks ranks, so that their import takes seconds only once.

DeepSpeed looks for its device when it is imported; the ranks of tests run on the CPU. Where it is not
installed, the tests that need it report that themselves.
"""

import contextlib
import os

import pytest  # noqa: F401
import torch._dynamo
import torch.distributed.fsdp  # noqa: F401

import trainwright_trainer.training.build
import trainwright_trainer.training.loop  # noqa: F401

os.environ["DS_ACCELERATOR"] = "cpu"
with contextlib.suppress(ModuleNotFoundError):
    import deepspeed  # noqa: F401
