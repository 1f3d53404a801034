"""Every verb of a run has three doors that lead to the same route: HTTP, the client and the command line.

The doors are tried by a viewer against a served API, so what each says is that route's refusal. The pages are watched in a
browser elsewhere. A route that changes something about runs, checkpoints or nodes and stands neither here nor among those
that are no verbs of a run fails the test.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
from fastapi.routing import iter_route_contexts
from typer.testing import CliRunner

from tests.backend.scripted_agent import Scene, Work
from trainwright import cli
from trainwright.client import Client, TeamClient
from trainwright.connection import ApiError
from trainwright.contracts.api.verbs import BulkVerb, Retention, RunLayout
from trainwright.contracts.parallelism_spec import ParallelismSpec
from trainwright_backend.local import listen

T = "/api/v1/teams/{team}"
R = f"{T}/runs/{{run}}"
C = f"{R}/checkpoints/{{checkpoint}}"


class Named(NamedTuple):
    """What the doors are asked about."""

    run: str
    checkpoint: str
    node: str


Method = Callable[[TeamClient, Client, Named], object]


class Verb(NamedTuple):
    """One thing that people do with a run, and its doors."""

    route: str
    body: dict[str, Any] | None
    method: Method
    command: str
    """Its words, with the names of what it is asked about in braces."""
    least: str = "editor"


VERBS: dict[str, Verb] = {
    "pause": Verb(f"POST {R}/pause", None, lambda t, _, n: t.pause(n.run), "runs pause {run}"),
    "resume": Verb(f"POST {R}/resume", None, lambda t, _, n: t.resume(n.run), "runs resume {run}"),
    "cancel": Verb(f"POST {R}/cancel", None, lambda t, _, n: t.cancel(n.run), "runs cancel {run}"),
    "fork": Verb(f"POST {R}/fork", {"name": "a"}, lambda t, _, n: t.fork(n.run, "a"), "runs fork {run} a"),
    "clone": Verb(
        f"POST {R}/clone", {"name": "a"}, lambda t, _, n: t.clone(n.run, "a"), "runs clone {run} a"
    ),
    "tag": Verb(
        f"POST {T}/runs/bulk",
        {"verb": "tag", "runs": ["{run}"], "tags": ["a"]},
        lambda t, _, n: t.act(BulkVerb.TAG, [n.run], ["a"]),
        "runs tag {run} --add a",
    ),
    "note": Verb(
        f"PATCH {R}", {"notes": "a"}, lambda t, _, n: t.edit(n.run, notes="a"), "runs edit {run} --notes a"
    ),
    "rename": Verb(
        f"PATCH {R}", {"name": "a"}, lambda t, _, n: t.edit(n.run, name="a"), "runs edit {run} --name a"
    ),
    "delete": Verb(f"DELETE {R}", None, lambda t, _, n: t.delete_run(n.run), "runs delete {run}"),
    "retain": Verb(
        f"POST {T}/checkpoints/retention", {}, lambda t, _, n: t.retain(Retention()), "checkpoints retain"
    ),
    "pin": Verb(
        f"PATCH {C}",
        {"pinned": True},
        lambda t, _, n: t.pin(n.run, n.checkpoint),
        "checkpoints pin {run} {checkpoint}",
    ),
    "delete checkpoint": Verb(
        f"DELETE {C}",
        None,
        lambda t, _, n: t.delete_checkpoint(n.run, n.checkpoint),
        "checkpoints delete {run} {checkpoint}",
    ),
    "layout": Verb(
        f"PUT {R}/layout",
        {"parallelism": {}},
        lambda t, _, n: t.change_layout(n.run, RunLayout(parallelism=ParallelismSpec())),
        "layout {run} --set batch.micro_sequences=4",
    ),
    "download": Verb(
        f"GET {C}/files",
        None,
        lambda t, _, n: t.download(n.run, Path("there"), n.checkpoint),
        "runs download {run} there --checkpoint {checkpoint}",
        "viewer",
    ),
    "drain": Verb(
        "PATCH /api/v1/nodes/{node}",
        {"draining": True},
        lambda _, c, n: c.set_draining(n.node, True),
        "nodes drain {node}",
        "site admin",
    ),
}
NO_VERBS = {
    f"POST {T}/runs",
    f"POST {T}/runs/validate",
    f"POST {T}/runs/plan",
    f"POST {T}/runs/estimate",
    "DELETE /api/v1/nodes/{node}",
}
"""They begin a run, only look, or are the operator's."""


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def work(scene: Scene) -> Work:
    made = scene.running(last_step=4)
    made.save(4)
    return made


@pytest.fixture
def named(scene: Scene, work: Work) -> Named:
    (checkpoint,) = scene.site.admin.get(f"{scene.runs}/{work.run_id}/checkpoints").json()
    (node,) = scene.site.admin.get("/api/v1/nodes").json()
    return Named(work.run_id, checkpoint["id"], node["id"])


class Served(NamedTuple):
    """The application, which runs already, on the loopback interface."""

    url: str
    heard: list[str]
    """Method and path of each request."""


@pytest.fixture
def served(scene: Scene) -> Iterator[Served]:
    heard: list[str] = []

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        heard.append(f"{scope['method']} {scope['path']}")
        await scene.site.app(scope, receive, send)

    socket = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(listening, lifespan="off", log_level="error"))
    thread = threading.Thread(target=server.run, args=([socket],))
    thread.start()
    yield Served(f"http://127.0.0.1:{socket.getsockname()[1]}", heard)
    server.should_exit = True
    thread.join()
    socket.close()


def test_every_verb_has_all_doors_and_a_viewer_hears_the_same_refusal_at_each(
    scene: Scene, named: Named, served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    viewer = scene.site.member("viewer")
    key = viewer.headers["Authorization"].removeprefix("Bearer ")
    before = _what_verbs_change(scene, named)
    for name, verb in VERBS.items():
        method, _, path = verb.route.partition(" ")
        address = path.format(team=scene.site.team, **named._asdict())
        answer = viewer.request(method, address, json=_filled(verb.body, named))
        served.heard.clear()
        by_client = _by_client(verb, served.url, key, named)
        assert f"{method} {address}" in served.heard, f"{name} by the client"
        served.heard.clear()
        by_command = _by_command(verb, served.url, key, named)
        assert f"{method} {address}" in served.heard, f"{name} by the command line: {by_command}"
        if verb.least == "viewer":
            assert (answer.status_code, by_client, by_command[0]) == (200, None, 0), name
            continue
        assert (answer.status_code, by_client) == (403, (403, answer.json()["detail"])), name
        if verb.least == "editor":
            assert answer.json()["detail"] == (
                "This needs the role editor in acme; yours is viewer. Ask an owner of the team."
            )
        assert by_command[0] == 1 and answer.json()["detail"] in by_command[1], name
    assert _what_verbs_change(scene, named) == before


def _what_verbs_change(scene: Scene, named: Named) -> object:
    run = scene.show(named.run)
    kept = scene.site.admin.get(f"{scene.runs}/{named.run}/checkpoints").json()
    runs = [one["id"] for one in scene.site.admin.get(scene.runs).json()["items"]]
    (node,) = scene.site.admin.get("/api/v1/nodes").json()
    return [run[name] for name in ("state", "name", "notes", "tags", "spec")], kept, runs, node["draining"]


def test_every_route_that_changes_something_about_runs_is_a_verb_here(scene: Scene) -> None:
    found = {
        f"{method} {route.path}"
        for route in iter_route_contexts(scene.site.app.routes)
        for method in route.methods or ()
        if method not in ("GET", "HEAD", "OPTIONS")
        if str(route.path).startswith((f"{T}/runs", f"{T}/checkpoints", "/api/v1/nodes"))
    }
    assert found == {verb.route for verb in VERBS.values() if not verb.route.startswith("GET")} | NO_VERBS


def _filled(body: Any, named: Named) -> Any:
    if isinstance(body, str):
        return body.format(**named._asdict())
    if isinstance(body, list):
        return [_filled(one, named) for one in body]
    return {key: _filled(one, named) for key, one in body.items()} if isinstance(body, dict) else body


def _by_client(verb: Verb, url: str, key: str, named: Named) -> tuple[int, str] | None:
    """Status and sentence of the refusal; None where it was done."""
    with Client(url, key) as client:
        try:
            verb.method(client.team("acme"), client, named)
        except ApiError as refused:
            return refused.status, refused.detail
    return None


def _by_command(verb: Verb, url: str, key: str, named: Named) -> tuple[int, str]:
    """Exit code, and what was printed as one line."""
    surroundings = {"TRAINWRIGHT_SERVER": url, "TRAINWRIGHT_KEY": key, "TRAINWRIGHT_TEAM": "acme"}
    words = verb.command.format(**named._asdict()).split()
    done = CliRunner().invoke(cli.app, words, env=surroundings | {"COLUMNS": "200"})
    return done.exit_code, " ".join(done.output.split())


def test_a_door_that_is_not_there_is_noticed(named: Named, served: Served) -> None:
    missing = VERBS["pause"]._replace(command="runs hold {run}")
    assert _by_command(missing, served.url, "tw_none", named)[0] == 2 and served.heard == []
