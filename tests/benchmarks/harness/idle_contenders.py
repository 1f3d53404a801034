"""Contenders that only sleep or exit, for the tests of interleaving."""

import os
import time

from tests.benchmarks.harness.interleave import Pacer, Request


def slow(request: Request, pacer: Pacer) -> None:
    pacer.start()
    while True:
        time.sleep(0.02)
        pacer.step_done()


def quick(request: Request, pacer: Pacer) -> None:
    """Slow only in work that is not timed."""
    pacer.start()
    while True:
        time.sleep(0.02)
        pacer.begin()
        pacer.step_done(lambda: time.sleep(0.02))


def ends(request: Request, pacer: Pacer) -> None:
    pacer.start()
    os._exit(3)
