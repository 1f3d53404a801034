"""The server that forks processes of tests: ranks of the trainer, and API servers that are killed during uploads.

Python has one such server in a process, and its imports are those of its first use. So both kinds name the same ones here;
an import that fails, for want of torch, is left to the tests that need it.
"""

import multiprocessing

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.trainer.preload", "tests.backend.uploads.faults"])
