"""Tests of the connection between two nodes: what is measured, and what each fault reports."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.agent.machine import wait_for
from trainwright.contracts.agent_protocol import LinkResult, LinkTest, LinkTestReport
from trainwright_agent.daemon import link_test
from trainwright_agent.daemon.link_test import BLOCK_BYTES, LinkTester, connect, serve

KEY, LOCAL = "5" * 64, "127.0.0.1"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_test, "MAX_BYTES", 4 * BLOCK_BYTES)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOCAL, 0)) as listening:
        yield listening


def port_of(server: socket.socket) -> int:
    port: int = server.getsockname()[1]
    return port


def serve_and(server: socket.socket, act: Callable[[int], object], seconds: float = 10.0) -> LinkResult:
    """The listener's result while ``act`` runs at its port."""
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve, server, KEY, seconds, threading.Event())
        act(port_of(server))
        return served.result(30)


def finished(tester: LinkTester, test_id: str) -> LinkResult:
    def report() -> LinkTestReport:
        return next(item for item in tester.reports() if item.id == test_id)

    wait_for(lambda: report().result is not None, "the test has a result")
    result = report().result
    assert result is not None
    return result


def test_both_nodes_measure_what_arrives() -> None:
    news = threading.Event()
    listener, connector = LinkTester(news.set), LinkTester(news.set)
    listener.ask([LinkTest(id="1", key=KEY, seconds=10)], LOCAL)
    wait_for(lambda: listener.reports()[0].port is not None, "the listener reports its port")
    assert news.is_set(), "the agent is notified of the port"
    test = LinkTest(id="1", key=KEY, address=LOCAL, port=listener.reports()[0].port, seconds=10)
    connector.ask([test], LOCAL)
    for tester in (listener, connector):
        result = finished(tester, "1")
        assert (result.problem, result.bytes_per_second > 0) == ("", True)
        tester.ask([test], LOCAL)
        assert len(tester.reports()) == 1, "a test runs once"
        tester.ask([], LOCAL)
        assert tester.reports() == [], "it is forgotten when the platform no longer lists it"


def test_who_does_not_know_the_key_is_not_served(server: socket.socket) -> None:
    def connect_as_stranger_first(port: int) -> None:
        for key in ("6" * 64, "", "short"):
            with socket.create_connection((LOCAL, port)) as stranger:
                stranger.sendall(key.encode())
                stranger.shutdown(socket.SHUT_WR)
                assert stranger.recv(1) == b""
        assert connect(LOCAL, port, KEY).problem == ""

    assert serve_and(server, connect_as_stranger_first).problem == ""


def test_a_changed_block_is_named(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(connection: socket.socket, block: bytes) -> None:
        for number in range(1, 5):
            changed = bytearray(block)
            changed[7] ^= number == 3
            connection.sendall(link_test._NUMBER.pack(number) + changed)

    monkeypatch.setattr(link_test, "_send", send)
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve, server, KEY, 10.0, threading.Event())
        with pytest.raises(OSError, match=r"closed the connection|reset|Broken pipe"):
            connect(LOCAL, port_of(server), KEY)
        assert served.result(30).problem == "block 3 of 1 MiB had changed when it arrived"


def test_a_node_to_which_nobody_connects_says_so(server: socket.socket) -> None:
    with pytest.raises(OSError, match=r"nobody connected within 0.1 s"):
        serve(server, KEY, 0.1, threading.Event())
    tester = LinkTester(lambda: None)
    tester.ask([LinkTest(id="1", key=KEY, seconds=10)], None)
    assert finished(tester, "1").problem == "this node has no address at which others reach it"


def test_a_node_that_refuses_the_connection_is_reported(server: socket.socket) -> None:
    port = port_of(server)
    server.close()
    tester = LinkTester(lambda: None)
    tester.ask([LinkTest(id="1", key=KEY, address=LOCAL, port=port, seconds=10)], LOCAL)
    assert "refused" in finished(tester, "1").problem


def test_a_node_that_sends_nothing_ends_the_test_in_time(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over a network that passes data one way only."""
    monkeypatch.setattr(link_test, "MAX_SECONDS", 0.3)

    def connect_and_say_nothing(port: int) -> None:
        with socket.create_connection((LOCAL, port)) as silent:
            silent.sendall(KEY.encode())
            assert silent.recv(1) == b"", "the listener closes the connection"

    with pytest.raises(TimeoutError):
        serve_and(server, connect_and_say_nothing)


def test_a_test_that_is_no_longer_wanted_stops_listening() -> None:
    tester = LinkTester(lambda: None)
    tester.ask([LinkTest(id="1", key=KEY, seconds=600)], LOCAL)
    running = tester._running["1"]
    wait_for(lambda: running.report().port is not None, "it listens")
    tester.ask([], LOCAL)
    running.join(10)
    assert not running.is_alive()
