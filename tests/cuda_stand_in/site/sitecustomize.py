"""Installs the stand-in when a Python process starts: the ``PYTHONPATH`` of a test's child processes has this
folder."""

import resource

import torch

from tests.cuda_stand_in.driver import cuda_stand_in

torch.set_num_threads(1)
# A CPU promises memory that it does not have; a GPU refuses.
resource.setrlimit(resource.RLIMIT_AS, (64 * 2**30,) * 2)
_for_this_process = cuda_stand_in()
_for_this_process.__enter__()
