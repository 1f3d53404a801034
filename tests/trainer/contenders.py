"""What takes turns in the tests of taking turns."""

import os
import time

from tests.benchmarks.turns import Pacer, Request


def slow(request: Request, pacer: Pacer) -> None:
    pacer.start()
    while True:
        time.sleep(0.02)
        pacer.step_done()


def quick(request: Request, pacer: Pacer) -> None:
    """Only what is not counted is slow here."""
    pacer.start()
    while True:
        time.sleep(0.02)
        pacer.begin()
        pacer.step_done(lambda: time.sleep(0.02))


def ends(request: Request, pacer: Pacer) -> None:
    pacer.start()
    os._exit(3)
