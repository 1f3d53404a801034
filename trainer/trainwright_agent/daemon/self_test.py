"""The self-test that a node in quarantine has to pass.

The trainer checks memory, matmuls and the links between GPUs. This module compares the GPUs and the CPU's peak with
those that the node had before, and checks whether the node reaches itself at the address that it gives to others. The
test runs in a thread when no run is on the node. If it fails, it runs again later. After it has passed, the platform has the
connections to other nodes tested (`link_test`).
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

from trainwright.contracts.agent_protocol import CpuPeak, Gpu, Inventory, SelfTestCheck, SelfTestReport
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright_agent.daemon.inventory import DeviceMeasurement, measure_devices
from trainwright_agent.identity import Settings

log = logging.getLogger(__name__)

REPEAT_SECONDS = 600.0
"""Time between a failed test and the next one."""
SLOWEST_FRACTION = 1 / 3
"""Fraction of the best earlier peak that must be reached. On cores that other machines share, the same matmuls have taken 2.5
times as long."""
_CANCEL_SECONDS = 5.0
_LOOPBACK_SECONDS = 5.0
_LOOPBACK_BYTES = b"trainwright"


class SelfTester:
    """Runs the self-tests that the platform asks for, one at a time.

    Args:
        settings: the operator's settings.
        on_result: called in the test's thread when there is a result.
    """

    def __init__(self, settings: Settings, on_result: Callable[[], None]) -> None:
        self._settings = settings
        self._on_result = on_result
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()
        self._running_for = ""
        self._ended = 0.0
        self.report: SelfTestReport | None = None
        """The newest result, while the platform asks for it."""

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def cancel_unless(self, wanted: str | None) -> None:
        """End a test that is no longer ``wanted``: the node was released and may get runs now.

        Its result is not reported.
        """
        if self._thread is not None and self._thread.is_alive() and self._running_for != wanted:
            self._cancelled.set()
            self._thread.join(_CANCEL_SECONDS)

    def ask(self, wanted: str | None, inventory: Inventory, *, is_idle: bool) -> None:
        """Start the test ``wanted`` unless it runs, has passed, or failed a short while ago.

        Args:
            wanted: identifies the request; None if there is none.
            inventory: of this node, from before the test.
            is_idle: whether no run is on the node.
        """
        if self.report is not None and self.report.id != wanted:
            self.report = None
        if wanted is None or not is_idle or self.is_running:
            return
        if self.report is not None and (
            self.report.passed or time.monotonic() < self._ended + REPEAT_SECONDS
        ):
            return
        self._cancelled = threading.Event()
        self._running_for = wanted
        self._thread = threading.Thread(
            target=self._run, args=(wanted, inventory, self._cancelled), name="self-test", daemon=True
        )
        self._thread.start()

    def _run(self, wanted: str, inventory: Inventory, cancelled: threading.Event) -> None:
        log.info("this node is in quarantine and tests itself")
        checks = list(check_node(inventory, measure_devices(self._settings, "--health", cancelled=cancelled)))
        if cancelled.is_set():
            log.info("the node was released before the self-test had ended")
            return
        for check in checks:
            log.log(logging.INFO if check.passed else logging.ERROR, "self-test: %s", check)
        self.report, self._ended = SelfTestReport(id=wanted, checks=checks), time.monotonic()
        self._on_result()


def check_node(inventory: Inventory, measured: DeviceMeasurement | None) -> Iterator[SelfTestCheck]:
    """The checks of a node.

    Args:
        inventory: what the node reported before.
        measured: what the trainer's self-test measured now; None if it failed.
    """
    if measured is None:
        detail = "The trainer's self-test failed. Read the agent's log."
        yield SelfTestCheck(name="self-test", passed=False, detail=detail)
        return
    yield from measured.health
    for gpu in inventory.gpus:
        found = next((each for each in measured.cuda if each.index == gpu.index), None)
        before, now = _description(gpu), "gone" if found is None else _description(found)
        detail = "" if before == now else f"It was {before}, and is {now}."
        yield SelfTestCheck(name=f"GPU {gpu.index}", passed=before == now, detail=detail)
    if inventory.cpu_peak is not None:
        yield from _check_rates(inventory.cpu_peak, measured.cpu.flops_per_second)
    if inventory.peer_address is not None:
        problem = check_loopback(inventory.peer_address)
        yield SelfTestCheck(name="own address", passed=not problem, detail=problem)


def _description(gpu: Gpu) -> str:
    return f"{gpu.name} with {gpu.memory_bytes:,} bytes"


def _check_rates(before: CpuPeak, now: CpuPeak) -> Iterator[SelfTestCheck]:
    for kind in (PrecisionKind.FP32, PrecisionKind.BF16):
        expected, rate = before.rate(kind), getattr(now, kind.value)
        if expected is not None:
            detail = f"{rate / 1e9:.1f} of {expected / 1e9:.1f} GFLOP/s per slot"
            name, passed = f"{kind.value} matmul speed", rate >= SLOWEST_FRACTION * expected
            yield SelfTestCheck(name=name, passed=passed, detail=detail)


def check_loopback(address: str) -> str:
    """The error of a connection of this machine to its own ``address``; empty if there is none."""
    try:
        with socket.create_server((address, 0)) as server:
            server.settimeout(_LOOPBACK_SECONDS)
            port = server.getsockname()[1]
            with socket.create_connection((address, port), _LOOPBACK_SECONDS) as client:
                accepted, _ = server.accept()
                with accepted:
                    accepted.settimeout(_LOOPBACK_SECONDS)
                    client.sendall(_LOOPBACK_BYTES)
                    received = accepted.recv(len(_LOOPBACK_BYTES), socket.MSG_WAITALL)
    except OSError as error:
        return f"{address} cannot be reached from this node: {error}"
    return "" if received == _LOOPBACK_BYTES else f"bytes sent to {address} came back changed"
