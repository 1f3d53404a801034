"""The self-test of a node in quarantine: what is checked, and when it runs."""

import socket
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent.machine import wait_for
from trainwright.contracts.agent_protocol import CpuPeak, Gpu, Inventory, SelfTestCheck, SelfTestReport
from trainwright_agent.daemon import self_test as self_tests
from trainwright_agent.daemon.inventory import DeviceMeasurement, measure_devices
from trainwright_agent.daemon.self_test import REPEAT_SECONDS, SelfTester, check_loopback, check_node
from trainwright_agent.identity import Settings

GPU = Gpu(index=0, name="NVIDIA H100", memory_bytes=80 * 2**30)
PEAK = CpuPeak(fp32=60e9, bf16=90e9)


def inventory(**fields: Any) -> Inventory:
    known: dict[str, Any] = {"gpus": [GPU], "cpu_peak": PEAK, "peer_address": "127.0.0.1"}
    machine = {"hostname": "gpu-07", "os": "Linux", "cores": 8, "memory_bytes": 2**34, "cpu_slots": 2}
    return Inventory.model_validate(machine | known | fields)


def measured(gpus: list[Gpu], peak: CpuPeak = PEAK, *health: SelfTestCheck) -> DeviceMeasurement:
    return DeviceMeasurement.model_validate(
        {"cpu": {"flops_per_second": peak}, "cuda": gpus, "health": [check.model_dump() for check in health]}
    )


def failed(checks: list[SelfTestCheck]) -> dict[str, str]:
    return {check.name: check.detail for check in checks if not check.passed}


def test_an_unchanged_node_passes() -> None:
    checks = list(check_node(inventory(), measured([GPU], PEAK, SelfTestCheck(name="memory", passed=True))))
    assert failed(checks) == {}
    assert [check.name for check in checks] == [
        "memory",
        "GPU 0",
        "fp32 matmul speed",
        "bf16 matmul speed",
        "own address",
    ]


SMALLER = GPU.model_copy(update={"memory_bytes": 2**30})
FAULTS: list[tuple[DeviceMeasurement | None, str, str]] = [
    (None, "self-test", "Read the agent's log"),
    (measured([]), "GPU 0", "is gone"),
    (measured([SMALLER]), "GPU 0", "85,899,345,920 bytes, and is NVIDIA H100 with 1,073,741,824"),
    (measured([GPU], CpuPeak(fp32=19e9, bf16=90e9)), "fp32 matmul speed", "19.0 of 60.0 GFLOP/s"),
    (measured([GPU], PEAK, SelfTestCheck(name="memory", passed=False, detail="lost")), "memory", "lost"),
]


@pytest.mark.parametrize(("found", "name", "detail"), FAULTS)
def test_each_fault_is_named(found: DeviceMeasurement | None, name: str, detail: str) -> None:
    told = failed(list(check_node(inventory(), found)))
    assert list(told) == [name]
    assert detail in told[name]


def test_a_shared_machine_may_be_much_slower() -> None:
    slow = CpuPeak(fp32=PEAK.fp32 / 2.5, bf16=PEAK.bf16 / 2.5)
    assert failed(list(check_node(inventory(), measured([GPU], slow)))) == {}


def test_values_that_were_never_known_are_not_checked() -> None:
    checks = check_node(inventory(gpus=[], cpu_peak=None, peer_address=None), measured([]))
    assert list(checks) == []


def test_many_gpus_fit_into_a_report() -> None:
    gpus = [GPU.model_copy(update={"index": index}) for index in range(64)]
    checks = [SelfTestCheck(name=f"check {number}", passed=True) for number in range(3 * len(gpus))]
    found = list(check_node(inventory(gpus=gpus), measured(gpus, PEAK, *checks)))
    assert SelfTestReport(id="1", checks=found).passed


def test_an_address_of_another_machine_cannot_be_reached() -> None:
    assert check_loopback("127.0.0.1") == ""
    assert check_loopback("203.0.113.7").startswith("203.0.113.7 cannot be reached from this node: ")


def test_bytes_that_change_in_transfer_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "sendall", lambda self, _: self.send(b"trainwrighT"))
    assert check_loopback("127.0.0.1") == "bytes sent to 127.0.0.1 came back changed"


class Node:
    """A tester whose self-tests end when the test allows it, on a clock that the test controls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.started, self.passes = 1_000.0, 0, True
        self.may_end, self.ended = threading.Event(), threading.Event()
        self.may_end.set()
        self.tester = SelfTester(Settings(), self.ended.set)
        monkeypatch.setattr(self_tests, "time", SimpleNamespace(monotonic=lambda: self.seconds))
        monkeypatch.setattr(self_tests, "measure_devices", self._test)

    def _test(self, _: Settings, *options: str, cancelled: threading.Event) -> DeviceMeasurement | None:
        assert options == ("--health",)
        self.started += 1
        for _seconds in range(100):
            if cancelled.wait(0.05):
                return None
            if self.may_end.wait(0.05):
                break
        return measured([GPU], PEAK, SelfTestCheck(name="memory", passed=self.passes))

    def ask(self, wanted: str | None, *, is_idle: bool = True) -> None:
        self.tester.ask(wanted, inventory(peer_address=None), is_idle=is_idle)

    def finish(self) -> None:
        self.may_end.set()
        thread = self.tester._thread
        assert thread is not None
        thread.join(10)
        assert self.ended.is_set(), "the agent is notified of the result"


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


def test_a_node_tests_itself_only_on_request_and_when_idle(node: Node) -> None:
    node.ask(None)
    node.ask("1", is_idle=False)
    assert node.started == 0
    node.ask("1")
    node.finish()
    assert node.tester.report is not None
    assert (node.tester.report.id, node.tester.report.passed) == ("1", True)


def test_a_test_ends_without_a_report_if_the_node_is_released_in_the_meantime(node: Node) -> None:
    node.may_end.clear()
    node.ask("1")
    node.tester.cancel_unless("1")
    assert node.tester.is_running, "it is still requested"
    node.tester.cancel_unless(None)
    assert not node.tester.is_running, "runs may be claimed now"
    assert node.tester.report is None and not node.ended.is_set()
    node.may_end.set()
    node.ask("2")
    node.finish()
    assert node.tester.report is not None and node.tester.report.id == "2"


def test_a_cancelled_self_test_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-test has started child processes."""
    package = tmp_path / "slow_trainer"
    package.mkdir()
    (package / "__init__.py").touch()
    pids = tmp_path / "pids"
    (package / "main.py").write_text(
        "import os, pathlib, time\n"
        "child = os.fork()\n"
        f"if child: pathlib.Path({str(pids)!r}).write_text(f'{{os.getpid()}} {{child}}')\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    cancelled, results = threading.Event(), []
    settings = Settings(trainer_module="slow_trainer")
    tested = threading.Thread(target=lambda: results.append(measure_devices(settings, cancelled=cancelled)))
    tested.start()
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2, "the test runs")
    cancelled.set()
    tested.join(20)
    assert results == [None]
    for pid in map(int, pids.read_text().split()):
        wait_for(partial(_is_gone, pid), "its processes are gone")


def _is_gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_one_test_runs_at_a_time(node: Node) -> None:
    node.may_end.clear()
    for _ in range(3):
        node.ask("1")
    assert node.tester.is_running
    node.finish()
    assert (node.started, node.tester.is_running) == (1, False)


def test_a_passed_test_is_reported_until_the_platform_no_longer_requests_it(node: Node) -> None:
    node.ask("1")
    node.finish()
    node.seconds += 2 * REPEAT_SECONDS
    node.ask("1")
    assert (node.started, node.tester.report is None) == (1, False)
    node.ask(None)
    assert node.tester.report is None


def test_a_test_that_failed_is_repeated_after_a_while(node: Node) -> None:
    node.passes = False
    node.ask("1")
    node.finish()
    node.seconds += REPEAT_SECONDS - 1
    node.ask("1")
    assert node.started == 1
    node.seconds += 2
    node.ask("1")
    node.finish()
    assert node.started == 2


def test_another_quarantine_gets_its_own_test_immediately(node: Node) -> None:
    node.passes = False
    node.ask("1")
    node.finish()
    node.ask("2")
    node.finish()
    assert node.tester.report is not None
    assert (node.started, node.tester.report.id) == (2, "2")
