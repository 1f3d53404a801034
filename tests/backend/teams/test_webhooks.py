"""Webhooks are signed as standard receivers expect, retried with back-off, and never sent into the server's own
network."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import BadStatusLine, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from typing import Any

import pytest
from sqlalchemy import func, select, text, update
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from tests.backend.scripted_agent import Scene, patient, scene
from tests.live import eventually
from trainwright.contracts.api.webhooks import WebhookEvent
from trainwright.contracts.end_codes import EndCode
from trainwright_backend.core import public_http
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.core.public_http import RefusedAddressError, is_reachable, post
from trainwright_backend.core.settings import Settings
from trainwright_backend.nodes.quarantine import quarantine
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.limit_pause import pause_for
from trainwright_backend.runs.transitions import lock_run
from trainwright_backend.teams import webhook_sender
from trainwright_backend.teams.tables import WebhookDelivery
from trainwright_backend.teams.webhook_sender import MAX_IN_FLIGHT_PER_TEAM, PAUSES, THREADS, WebhookSender

__all__ = ["scene"]

LOOPBACK = ["127.0.0.0/8"]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return patient(settings).model_copy(update={"webhook_networks": LOOPBACK})


@dataclass
class Receiver:
    """A web server on the loopback interface, with the responses that it gives next."""

    url: str
    responses: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    received: list[tuple[dict[str, str], str]] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as found:
        yield found


@pytest.fixture
def slow_receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A web server that answers once the test sets `may_answer`."""
    monkeypatch.setattr(public_http, "TIMEOUT_SECONDS", 60.0)
    with running_receiver() as found:
        found.may_answer.clear()
        yield found
        found.may_answer.set()


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    found = Receiver("")
    found.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found.received.append(({key.lower(): value for key, value in self.headers.items()}, body))
            found.may_answer.wait()
            status, headers = found.responses.pop(0) if found.responses else (204, {})
            self.send_response(status)
            for name, value in {"Content-Length": "0", **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}/hook?x=1"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def create(scene: Scene, url: str, *events: WebhookEvent) -> dict[str, Any]:
    new = {"url": url} | ({"events": list(events)} if events else {})
    made = scene.site.admin.post(f"{scene.site.path}/webhooks", json=new)
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


@contextmanager
def sending(scene: Scene, networks: list[str] = LOOPBACK) -> Iterator[WebhookSender]:
    state = scene.site.app.state
    sender = WebhookSender(state.database, state.settings.model_copy(update={"webhook_networks": networks}))
    yield sender
    sender.close()


def deliver(scene: Scene, networks: list[str] = LOOPBACK) -> int:
    """Attempt each message that is due, once; returns the number of attempts."""
    before = attempts(scene)
    with sending(scene, networks) as sender:
        for work in sender.start_due():
            work.result()
    return attempts(scene) - before


def attempts(scene: Scene) -> int:
    with scene.database.read() as session:
        return session.scalar(select(func.sum(WebhookDelivery.attempts))) or 0


def last(scene: Scene) -> dict[str, Any]:
    [hook] = scene.site.admin.get(f"{scene.site.path}/webhooks").json()
    found: dict[str, Any] = hook["deliveries"][0]
    return found


def make_due(scene: Scene) -> None:
    with scene.database.write() as session:
        pending = WebhookDelivery.next_attempt.is_not(None)
        session.execute(update(WebhookDelivery).where(pending).values(next_attempt=now()))


def test_a_standard_receiver_verifies_messages_of_runs_and_nodes(scene: Scene, receiver: Receiver) -> None:
    hook = create(scene, receiver.url)
    failed = scene.running()
    assert failed.ended("out_of_memory") == "failed"
    scene.cancel(scene.submit())
    paused = scene.running()
    with scene.database.write() as session:
        run = lock_run(session, parse_id("run", paused.run_id))
        assert run is not None
        pause_for(session, run, EndCode.QUOTA_HOURS, "your team used 2 of 2 GPU-hours")
    assert paused.order("running") == "save"
    assert paused.ended("saved", step=3) == "paused"
    with scene.database.write() as session:
        quarantine(session, session.scalars(select(Node)).one(), "a reason that names another team's run")
    assert deliver(scene) == 4
    stock = Webhook(hook["secret"])
    told = [stock.verify(body, headers) for headers, body in receiver.received]
    assert [one["type"] for one in told] == [
        "run.failed",
        "run.ended",
        "run.paused_by_limit",
        "node.quarantined",
    ]
    assert told[0]["data"]["run"] == failed.run_id and told[0]["data"]["reason"] == "out_of_memory"
    assert told[2]["data"]["reason"] == "quota_hours" and told[3]["data"] == {"node": "node-a"}
    headers, body = receiver.received[0]
    with pytest.raises(WebhookVerificationError):
        stock.verify(body.replace("failed", "ended"), headers)
    assert deliver(scene) == 0 and last(scene)["delivered"] is not None


def test_a_fraction_of_a_limit_is_reported_once(scene: Scene, receiver: Receiver) -> None:
    hook = create(scene, receiver.url, WebhookEvent.LIMIT_REACHED)
    limits = {"cpu_hours_per_month": 0}
    assert scene.site.admin.put(f"{scene.site.path}/limits", json=limits).status_code == 200
    for _ in range(2):
        scene.control.sweep()
    assert deliver(scene) == 2
    told = [Webhook(hook["secret"]).verify(body, headers)["data"] for headers, body in receiver.received]
    assert [one["percent"] for one in told] == [80, 100] and told[0]["resource"] == "cpu_hours"


def test_only_subscribed_events_are_sent_and_a_person_s_pause_is_not_one(
    scene: Scene, receiver: Receiver
) -> None:
    create(scene, receiver.url, WebhookEvent.RUN_FAILED, WebhookEvent.RUN_PAUSED_BY_LIMIT)
    run_id = scene.submit()
    assert scene.site.admin.post(f"{scene.runs}/{run_id}/pause").status_code == 202
    assert scene.cancel(run_id).status_code == 202
    assert deliver(scene) == 0


def test_failures_are_retried_with_back_off_under_the_same_id_and_then_abandoned(
    scene: Scene, receiver: Receiver
) -> None:
    hook = create(scene, receiver.url)
    scene.site.admin.post(f"{scene.site.path}/webhooks/{hook['id']}/test")
    receiver.responses = [(500, {})] * (len(PAUSES) + 1)
    for attempt in range(1, len(PAUSES) + 2):
        before = now()
        assert deliver(scene) == 1
        shown = last(scene)
        assert (shown["attempts"], shown["status"], shown["delivered"]) == (attempt, 500, None)
        if attempt <= len(PAUSES):
            assert shown["next_attempt"] >= (before + PAUSES[attempt - 1]).isoformat()[:19]
            assert deliver(scene) == 0
        make_due(scene)
    assert last(scene)["next_attempt"] is None
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1


@pytest.mark.parametrize("status", [301, 307])
def test_a_redirect_is_not_followed(scene: Scene, receiver: Receiver, status: int) -> None:
    hook = create(scene, receiver.url)
    scene.site.admin.post(f"{scene.site.path}/webhooks/{hook['id']}/test")
    receiver.responses = [(status, {"Location": receiver.url})]
    assert deliver(scene) == 1
    assert len(receiver.received) == 1 and "not followed" in last(scene)["error"]


def test_an_address_that_is_gone_gets_no_more_attempts(scene: Scene, receiver: Receiver) -> None:
    hook = create(scene, receiver.url)
    scene.site.admin.post(f"{scene.site.path}/webhooks/{hook['id']}/test")
    receiver.responses = [(410, {})]
    deliver(scene)
    assert last(scene)["next_attempt"] is None and last(scene)["status"] == 410


@pytest.mark.both_databases
def test_two_senders_send_a_message_once(scene: Scene, receiver: Receiver) -> None:
    hook = create(scene, receiver.url)
    for _ in range(4):
        scene.site.admin.post(f"{scene.site.path}/webhooks/{hook['id']}/test")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: deliver(scene), range(2)))
    ids = [headers["webhook-id"] for headers, _ in receiver.received]
    assert len(ids) == len(set(ids)) == 4


def test_a_slow_address_delays_no_other(scene: Scene, slow_receiver: Receiver, receiver: Receiver) -> None:
    slow, fast = create(scene, slow_receiver.url), create(scene, receiver.url)
    with sending(scene) as sender:
        for sent in (1, 2):
            for hook in (slow, fast):
                scene.site.admin.post(f"{scene.site.path}/webhooks/{hook['id']}/test")
            sender.start_due()
            eventually(lambda sent=sent: len(receiver.received) == sent, "the fast address gets its message")
            eventually(lambda: len(slow_receiver.received) == 1, "the slow address has one message in flight")
        slow_receiver.may_answer.set()
        eventually(lambda: len(slow_receiver.received) == 2, "the slow address gets its other message")


def test_a_team_with_many_slow_addresses_leaves_threads_to_others(
    scene: Scene, slow_receiver: Receiver, receiver: Receiver
) -> None:
    other = scene.site.other_team("other")
    for _ in range(THREADS):
        hook = create(scene, slow_receiver.url)
        scene.site.admin.post(f"{scene.site.path}/webhooks/{hook['id']}/test")
    made = other.post("/api/v1/teams/other/webhooks", json={"url": receiver.url}).json()
    other.post(f"/api/v1/teams/other/webhooks/{made['id']}/test")
    with sending(scene) as sender:
        work = sender.start_due()
        eventually(lambda: len(receiver.received) == 1, "the other team gets its message")
        eventually(
            lambda: len(slow_receiver.received) == MAX_IN_FLIGHT_PER_TEAM, "few messages are in flight"
        )
        assert sender.start_due() == []
        slow_receiver.may_answer.set()
        wait(work)
    assert len(slow_receiver.received) == THREADS


def test_a_server_that_stops_waits_only_for_the_messages_in_flight(
    scene: Scene, slow_receiver: Receiver
) -> None:
    hook = create(scene, slow_receiver.url)
    for _ in range(3):
        scene.site.admin.post(f"{scene.site.path}/webhooks/{hook['id']}/test")
    with ThreadPoolExecutor(1) as pool:
        with sending(scene) as sender:
            sender.start_due()
            eventually(lambda: len(slow_receiver.received) == 1, "a message is in flight")
            closed = pool.submit(sender.close)
            eventually(lambda: sender.is_closed, "the sender is being closed")
            slow_receiver.may_answer.set()
        closed.result()
    assert len(slow_receiver.received) == 1 and attempts(scene) == 1
    assert deliver(scene) == 2


def test_the_server_s_own_network_is_not_contacted(scene: Scene, receiver: Receiver) -> None:
    hook = create(scene, receiver.url)
    scene.site.admin.post(f"{scene.site.path}/webhooks/{hook['id']}/test")
    assert deliver(scene, networks=[]) == 1
    assert receiver.received == [] and "no public address" in last(scene)["error"]


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (socket.gaierror(-2, "Name or service not known"), "The host's name is unknown."),
        (ConnectionRefusedError(111, "Connection refused"), "The host refuses connections to this port."),
        (ssl.SSLError(1, "WRONG_VERSION_NUMBER"), "The host does not speak TLS on this port."),
        (TimeoutError(), "The host did not respond within 10 s."),
        (BadStatusLine("x"), "The response is not HTTP."),
        (OSError("no route to host"), "No route to host."),
    ],
)
def test_a_failure_is_a_sentence(
    scene: Scene, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, failure: Exception, sentence: str
) -> None:
    def fail(*_: object) -> int:
        raise failure

    hook = create(scene, receiver.url)
    scene.site.admin.post(f"{scene.site.path}/webhooks/{hook['id']}/test")
    monkeypatch.setattr(webhook_sender, "post", fail)
    deliver(scene)
    assert last(scene)["error"] == sentence


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:127.0.0.1",
        "::",
        "100.64.0.1",
        "64:ff9b::10.1.2.3",
        "2002:7f00:1::1",
    ],
)
def test_private_and_special_addresses_are_refused(address: str) -> None:
    assert not is_reachable(address, [])


def test_public_and_allowed_addresses_are_contacted() -> None:
    assert is_reachable("93.184.216.34", []) and is_reachable("2606:4700::1111", [])
    assert is_reachable("64:ff9b::93.184.216.34", [])
    assert is_reachable("10.1.2.3", [ip_network("10.0.0.0/8")])


def test_a_name_that_resolves_differently_the_second_time_is_not_contacted(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    responses = [["93.184.216.34"], ["127.0.0.1"]]
    connected: list[Any] = []

    def resolve(host: str, port: int, **_: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in responses.pop(0)]

    def connect(address: Any, timeout: float) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(public_http.socket, "getaddrinfo", resolve)
    monkeypatch.setattr(public_http.socket, "create_connection", connect)
    with pytest.raises(ConnectionRefusedError):
        post("http://rebinding.example/", b"{}", {}, [])
    assert connected == [("93.184.216.34", 80)]
    with pytest.raises(RefusedAddressError):
        post("http://rebinding.example/", b"{}", {}, [])


def test_a_response_that_arrives_byte_by_byte_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_http, "TIMEOUT_SECONDS", 0.5)

    def answer_slowly(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":
                time.sleep(0.1)
                connection.sendall(bytes([byte]))

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        pool.submit(answer_slowly, listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises((OSError, HTTPException)):
            post(url, b"{}", {}, [ip_network("127.0.0.0/8")])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("abc", "Write an http or https address without a user name, such as https://example.org/hook."),
        ("ftp://example.org", "Write an http or https address"),
        ("https://user@example.org/", "Write an http or https address"),
        ("https://", "Write an http or https address"),
        ("https://?x", "This address has no valid host and port"),
        ("https://[::1", "This address has no valid host and port"),
        ("https://a..example.org/", "This address has no valid host and port"),
        ("https://example.org:99999/", "This address has no valid host and port"),
        ("http://127.0.0.1:8000/hook", "This is not a public address"),
        ("http://10.0.0.1/", "This is not a public address"),
        ("http://10.1/", "This is not a public address"),
        ("http://0x0a000001/", "This is not a public address"),
        ("http://169.254.169.254/latest", "This is not a public address"),
        ("http://[fe80::1]/", "This is not a public address"),
        ("http://[::ffff:192.168.0.1]/", "This is not a public address"),
    ],
)
def test_an_address_that_cannot_work_is_refused_with_a_remedy(scene: Scene, url: str, message: str) -> None:
    scene.site.app.state.settings = scene.site.app.state.settings.model_copy(update={"webhook_networks": []})
    refused = scene.site.admin.post(f"{scene.site.path}/webhooks", json={"url": url})
    [problem] = refused.json()["errors"]
    assert (refused.status_code, problem["field"], problem["value"]) == (422, "url", url)
    assert problem["message"].startswith(message)


def test_names_and_public_and_allowed_addresses_are_accepted_without_asking_a_name_server(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def numeric_only(*args: Any, flags: int = 0, **named: Any) -> Any:
        assert flags & socket.AI_NUMERICHOST
        return resolve(*args, flags=flags, **named)

    monkeypatch.setattr(public_http.socket, "getaddrinfo", numeric_only)
    for host in ("localhost", "unknown.example", "93.184.216.34", "[2606:4700::1111]", "127.0.0.1"):
        create(scene, f"http://{host}/hook")


def test_old_messages_are_found_by_an_index(scene: Scene) -> None:
    command = "EXPLAIN QUERY PLAN "
    with scene.database.read() as session:
        if not scene.database.is_sqlite:
            session.execute(text("SET LOCAL enable_seqscan = off"))  # a small table is read as a whole
            command = "EXPLAIN "
        plan = session.execute(text(f"{command}DELETE FROM webhook_delivery WHERE created < '2000-01-01'"))
        assert "ix_webhook_delivery_created" in str(plan.all())


def test_webhooks_are_of_their_team_and_their_secret_is_shown_once(scene: Scene) -> None:
    hook = create(scene, "https://example.org/hook")
    stranger, editor = scene.site.other_team("globex"), scene.site.member("editor")
    path = f"{scene.site.path}/webhooks"
    assert "secret" not in json.dumps(scene.site.admin.get(path).json())
    assert editor.get(path).status_code == 403
    assert stranger.delete(f"/api/v1/teams/globex/webhooks/{hook['id']}").status_code == 404
    assert scene.site.admin.delete(f"{path}/{hook['id']}").status_code == 204
    assert scene.site.admin.get(path).json() == []
