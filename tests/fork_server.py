"""The server that forks processes of tests: ranks of the trainer, and API servers that are killed during uploads.

Python has one such server per process, and it imports the modules of its first use. So both kinds list the same ones
here. An import that fails because torch is missing is reported by the tests that need it.
"""

import multiprocessing

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.trainer.preload", "tests.backend.uploads.faults"])
