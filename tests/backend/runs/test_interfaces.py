"""Every action on a run has three interfaces to one route: HTTP, the client and the command line.

A viewer tries each interface against a running API, so each shows that route's refusal. Requests are compared
as the route parses them. Members and invitations are tested the same way, and what their commands print in `test_people_commands`; browser tests cover the pages. A route that
changes a team, its members, invitations or service accounts, runs, checkpoints or nodes fails the test unless it is listed here, as an action or not.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts
from pydantic import TypeAdapter

from tests.backend.runs.conftest import ReceivedRequest, Served, key_of
from tests.backend.scripted_agent import Scene, Work
from tests.selection import partly_slow
from trainwright.client import Client, TeamClient
from trainwright.commands import run_actions
from trainwright.contracts.api.actions import Retention, RunAction, RunLayout
from trainwright.contracts.api.people import KeyScope, Role, RunsOfRemoved
from trainwright.contracts.api.queue import Priority
from trainwright.contracts.parallelism_spec import ParallelismSpec
from trainwright.transport.errors import ApiError

T = "/api/v1/teams/{team}"
L4 = "NVIDIA L4"
R = f"{T}/runs/{{run}}"
C = f"{R}/checkpoints/{{checkpoint}}"
NODE = "/api/v1/nodes/{node}"
INVITATIONS = f"{T}/invitations"
MEMBERS = f"{T}/members"
SERVICES = f"{T}/service-accounts"


class Named(NamedTuple):
    """Ids that the requests are about."""

    run: str
    other: str
    checkpoint: str
    node: str
    invitation: str
    member: str
    account: str
    key: str


Method = Callable[[TeamClient, Client, Named], object]


class Action(NamedTuple):
    """One action of a user on a run, and its interfaces."""

    route: str
    body: dict[str, Any] | None
    """The body that the route should receive. Names in braces, here and in the command, are fields of `Named`."""

    method: Method
    command: str | None
    """None if the command line only has the action for many runs."""

    query: dict[str, str] = {}
    least: str = "editor"


def many(action: RunAction, *tags: str) -> Action:
    option = {RunAction.TAG: "--add", RunAction.UNTAG: "--remove"}.get(action)
    words = [
        "runs",
        action.value if option is None else "tag",
        "{run}",
        "{other}",
        *(f"{option} {tag}" for tag in tags),
    ]
    return Action(
        f"POST {T}/runs/bulk",
        {"action": action.value, "runs": ["{run}", "{other}"], "tags": list(tags)},
        lambda t, _, n: t.act(action, [n.run, n.other], tags),
        " ".join(words),
    )


RULE = Retention(keep_last=1, keep_every_steps=3, delete_exports=True, dry_run=False)
LAYOUT = RunLayout(parallelism=ParallelismSpec(zero_stage=1), micro_sequences=4)
CHANGES = {"schedule.steps": 20, "optimizer.clip_norm": None}
SETS = "--set schedule.steps=20 --set optimizer.clip_norm="
ONE_OF_MANY: dict[str, Action] = {
    "pause": Action(f"POST {R}/pause", None, lambda t, _, n: t.pause(n.run), None),
    "resume": Action(f"POST {R}/resume", None, lambda t, _, n: t.resume(n.run), None),
    "cancel": Action(f"POST {R}/cancel", None, lambda t, _, n: t.cancel(n.run), None),
    "delete": Action(f"DELETE {R}", None, lambda t, _, n: t.delete_run(n.run), None),
}
ACTIONS: dict[str, Action] = {
    **ONE_OF_MANY,
    **{
        f"{action} many": many(action, *(("a", "b") if action in (RunAction.TAG, RunAction.UNTAG) else ()))
        for action in RunAction
    },
    "delete, tried": Action(
        f"DELETE {R}",
        None,
        lambda t, _, n: t.delete_run(n.run, dry_run=True),
        "runs delete {run} --dry-run",
        {"dry_run": "true"},
    ),
    "fork": Action(
        f"POST {R}/fork",
        {"name": "a", "changes": CHANGES, "checkpoint": "{checkpoint}"},
        lambda t, _, n: t.fork(n.run, "a", CHANGES, n.checkpoint),
        f"runs fork {{run}} a --checkpoint {{checkpoint}} {SETS}",
    ),
    "clone": Action(
        f"POST {R}/clone",
        {"name": "a", "changes": CHANGES},
        lambda t, _, n: t.clone(n.run, "a", CHANGES),
        f"runs clone {{run}} a {SETS}",
    ),
    "note": Action(
        f"PATCH {R}", {"notes": "a"}, lambda t, _, n: t.edit(n.run, notes="a"), "runs edit {run} --notes a"
    ),
    "reorder": Action(
        f"PUT {T}/queue/order",
        {"runs": ["{run}", "{other}"]},
        lambda t, _, n: t.reorder([n.run, n.other]),
        "queue reorder {run} {other}",
    ),
    "priority": Action(
        f"PATCH {R}",
        {"priority": "low"},
        lambda t, _, n: t.edit(n.run, priority=Priority.LOW),
        "queue priority low {run}",
    ),
    "rename": Action(
        f"PATCH {R}", {"name": "a"}, lambda t, _, n: t.edit(n.run, name="a"), "runs edit {run} --name a"
    ),
    "retain": Action(
        f"POST {T}/checkpoints/retention",
        {"runs": ["{run}"], **RULE.model_dump(exclude={"runs"})},
        lambda t, _, n: t.retain(RULE.model_copy(update={"runs": (n.run,)})),
        "checkpoints prune --run {run} --keep-last 1 --keep-every-steps 3 --delete-exports --yes",
    ),
    "retain, tried": Action(
        f"POST {T}/checkpoints/retention",
        {},
        lambda t, _, n: t.retain(Retention()),
        "checkpoints prune --dry-run",
    ),
    "pin": Action(
        f"PATCH {C}",
        {"pinned": True},
        lambda t, _, n: t.pin(n.run, n.checkpoint),
        "checkpoints pin {run} {checkpoint}",
    ),
    "unpin": Action(
        f"PATCH {C}",
        {"pinned": False},
        lambda t, _, n: t.pin(n.run, n.checkpoint, pinned=False),
        "checkpoints unpin {run} {checkpoint}",
    ),
    "delete checkpoint": Action(
        f"DELETE {C}",
        None,
        lambda t, _, n: t.delete_checkpoint(n.run, n.checkpoint),
        "checkpoints delete {run} {checkpoint}",
    ),
    "move": Action(
        f"POST {R}/move",
        {"node": "node-a"},
        lambda t, _, n: t.move(n.run, "node-a"),
        "runs move {run} --off node-a",
    ),
    "layout": Action(
        f"PUT {R}/layout",
        {"parallelism": {"zero_stage": 1}, "micro_sequences": 4},
        lambda t, _, n: t.change_layout(n.run, LAYOUT),
        "runs layout {run} --set parallelism.zero_stage=1 --set batch.micro_sequences=4",
    ),
    "download": Action(
        f"GET {C}/files",
        None,
        lambda t, _, n: t.download(n.run, Path("there"), n.checkpoint),
        "runs download {run} there --checkpoint {checkpoint}",
        least="viewer",
    ),
    "drain": Action(
        f"PATCH {NODE}",
        {"draining": True},
        lambda _, c, n: c.set_draining(n.node, True),
        "nodes drain {node}",
        least="site admin",
    ),
    "undrain": Action(
        f"PATCH {NODE}",
        {"draining": False},
        lambda _, c, n: c.set_draining(n.node, False),
        "nodes undrain {node}",
        least="site admin",
    ),
    "allow slots": Action(
        f"PATCH {NODE}",
        {"allowed_slots": {"cpu": 8}},
        lambda _, c, n: c.allow_slots(n.node, cpu=8),
        "nodes allow-slots {node} --cpu 8",
        least="site admin",
    ),
    "invite": Action(
        f"POST {INVITATIONS}",
        {"email": "bob@example.org", "role": "editor"},
        lambda t, *_: t.invite("bob@example.org", Role.EDITOR),
        "invitations create bob@example.org --role editor",
        least="owner",
    ),
    "invitations": Action(
        f"GET {INVITATIONS}",
        None,
        lambda t, *_: t.invitations(),
        "invitations list",
        {"limit": "100"},
        least="owner",
    ),
    "revoke": Action(
        f"DELETE {INVITATIONS}/{{invitation}}",
        None,
        lambda t, _, n: t.revoke_invitation(n.invitation),
        "invitations revoke {invitation}",
        least="owner",
    ),
    "rename team": Action(
        f"PATCH {T}", {"name": "Lab"}, lambda t, *_: t.rename("Lab"), "teams rename Lab", least="owner"
    ),
    "members": Action(
        f"GET {MEMBERS}", None, lambda t, *_: t.members(), "members list", {"limit": "100"}, least="viewer"
    ),
    "set role": Action(
        f"PATCH {MEMBERS}/{{member}}",
        {"role": "owner"},
        lambda t, _, n: t.change_role(n.member, Role.OWNER),
        "members set-role {member} owner",
        least="owner",
    ),
    "remove member": Action(
        f"DELETE {MEMBERS}/{{member}}",
        None,
        lambda t, _, n: t.remove_member(n.member),
        "members remove {member}",
        least="owner",
    ),
    "webhooks": Action(f"GET {T}/webhooks", None, lambda t, *_: t.webhooks(), "webhooks list", least="owner"),
    "audit log": Action(
        f"GET {T}/audit",
        None,
        lambda t, *_: t.audit("a", 5, actor="Ada", action="delete_run"),
        "audit list --search a --limit 5 --actor Ada --action delete_run",
        {"q": "a", "limit": "5", "actor": "Ada", "action": "delete_run"},
        least="owner",
    ),
    "audit log of the site": Action(
        "GET /api/v1/audit",
        None,
        lambda _, c, __: c.audit(limit=5, actor="Ada", action="delete_team"),
        "audit site --limit 5 --actor Ada --action delete_team",
        {"limit": "5", "actor": "Ada", "action": "delete_team"},
        least="site admin",
    ),
    "export of the audit log": Action(
        f"GET {T}/audit/export",
        None,
        lambda t, *_: t.export_audit(Path("log.jsonl")),
        "audit export log.jsonl",
        least="owner",
    ),
    "export of the audit log of the site": Action(
        "GET /api/v1/audit/export",
        None,
        lambda _, c, __: c.export_audit(Path("log.jsonl")),
        "audit export-site log.jsonl",
        least="site admin",
    ),
    "delete team": Action(
        f"DELETE {T}",
        None,
        lambda t, *_: t.delete_team("acme"),
        "teams delete --confirm acme",
        {"confirm": "acme"},
        least="owner",
    ),
    "remove member and cancel": Action(
        f"DELETE {MEMBERS}/{{member}}",
        None,
        lambda t, _, n: t.remove_member(n.member, RunsOfRemoved.CANCEL),
        "members remove {member} --runs cancel",
        {"runs": "cancel"},
        least="owner",
    ),
    "service accounts": Action(
        f"GET {SERVICES}", None, lambda t, *_: t.service_accounts(), "service-accounts list", least="owner"
    ),
    "create service account": Action(
        f"POST {SERVICES}",
        {"name": "weekly", "role": "viewer"},
        lambda t, *_: t.create_service_account("weekly", Role.VIEWER),
        "service-accounts create weekly --role viewer",
        least="owner",
    ),
    "delete service account and cancel": Action(
        f"DELETE {SERVICES}/{{account}}",
        None,
        lambda t, _, n: t.delete_service_account(n.account, RunsOfRemoved.CANCEL),
        "service-accounts delete {account} --runs cancel",
        {"runs": "cancel"},
        least="owner",
    ),
    "create service key": Action(
        f"POST {SERVICES}/{{account}}/keys",
        {"name": "ci", "scope": "read", "lifetime_days": 9},
        lambda t, _, n: t.create_service_key(n.account, "ci", KeyScope.READ, 9),
        "service-accounts create-key {account} ci --scope read --days 9",
        least="owner",
    ),
    "revoke service key": Action(
        f"DELETE {SERVICES}/{{account}}/keys/{{key}}",
        None,
        lambda t, _, n: t.revoke_service_key(n.account, n.key),
        "service-accounts revoke-key {account} {key}",
        least="owner",
    ),
    "usage by run": Action(
        f"GET {T}/usage/runs",
        None,
        lambda t, *_: t.run_usage(7),
        "usage --days 7 --csv-by-run",
        {"days": "7"},
        least="viewer",
    ),
    "limits": Action(f"GET {T}/limits", None, lambda t, *_: t.limits(), "limits show", least="viewer"),
    "members' limits": Action(
        f"GET {T}/limits/members", None, lambda t, *_: t.member_limits(), "limits members", least="viewer"
    ),
    "usage by member": Action(
        f"GET {T}/usage/members",
        None,
        lambda t, *_: t.member_usage(7),
        "usage --days 7 --csv",
        {"days": "7"},
        least="viewer",
    ),
}
OTHER_ROUTES = {
    f"POST {T}/runs",
    f"POST {T}/runs/validate",
    f"POST {T}/runs/plan",
    f"POST {T}/runs/what-if",
    f"POST {T}/runs/estimate",
    f"DELETE {NODE}",
    f"DELETE {MEMBERS}/me",
}
"""Routes that start a run, only read, are for the operator, or are allowed to the viewer who tries the others."""


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
    new = {"email": "ann@example.org", "role": "viewer"}
    invited = scene.site.admin.post(INVITATIONS.format(team=scene.site.team), json=new).json()
    member = scene.site.member("editor").get("/api/v1/me").json()
    services = SERVICES.format(team=scene.site.team)
    account = scene.site.admin.post(services, json={"name": "nightly"}).json()["id"]
    key = scene.site.admin.post(f"{services}/{account}/keys", json={"name": "key"}).json()["id"]
    return Named(
        work.run_id,
        scene.submit(),
        checkpoint["id"],
        node["id"],
        invited["id"],
        member["id"],
        account,
        key,
    )


def test_every_action_works_equally_through_all_interfaces_and_refuses_viewers(
    scene: Scene, named: Named, served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    viewer = scene.site.member("viewer")
    key = key_of(viewer)
    before = _state_before_actions(scene, named)
    for name, action in ACTIONS.items():
        method, address = _address(scene, action, named)
        response = viewer.request(method, address, json=_filled(action.body, named), params=action.query)
        by_client = _by_client(action, served.url, key, named)
        assert _differences(scene, action, named, served) == [], f"{name} by the client"
        by_command = _by_command(action, served, key, named)
        if by_command is not None:
            assert _differences(scene, action, named, served) == [], f"{name}: {by_command}"
        if action.least == "viewer":
            assert (response.status_code, by_client) == (200, None), name
            assert by_command is not None and by_command[0] == 0, name
            continue
        assert (response.status_code, by_client) == (403, (403, response.json()["detail"])), name
        if action.least == "editor":
            assert response.json()["detail"] == (
                "This requires the role editor in acme; yours is viewer. Ask an owner of the team."
            )
        if by_command is not None:
            assert by_command[0] == 1 and response.json()["detail"] in by_command[1], name
    assert _state_before_actions(scene, named) == before


def test_commands_for_many_runs_send_the_same_request_as_for_one(named: Named) -> None:
    bodies = [action.body or {} for action in ACTIONS.values() if action.route == f"POST {T}/runs/bulk"]
    assert {body["action"] for body in bodies} == set(RunAction), (
        "each action for many runs has its interfaces"
    )
    assert set(ONE_OF_MANY) <= {body["action"] for body in bodies}


def test_results_of_several_batches_are_one_json_array(
    scene: Scene, named: Named, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_actions, "MAX_RUNS_AT_ONCE", 1)
    shown = served.command(key_of(scene.site.admin), f"runs cancel {named.run} {named.other} --json")
    assert [result["run"] for result in json.loads(shown.stdout)] == [named.run, named.other]


WRONG: dict[str, dict[str, Any]] = {
    "fork": {"method": lambda t, _, n: t.fork(n.run, "a", CHANGES)},
    "clone": {"method": lambda t, _, n: t.clone(n.run, "a", {"schedule.steps": 21})},
    "pin": {"method": lambda t, _, n: t.pin(n.run, n.checkpoint, pinned=False)},
    "pause many": {"method": lambda t, _, n: t.act(RunAction.CANCEL, [n.run, n.other])},
    "resume many": {"method": lambda t, _, n: t.act(RunAction.RESUME, [n.other, n.run])},
    "tag many": {"command": "runs tag {run} {other} --add a"},
    "untag many": {"command": "runs tag {run} {other} --add a --add b"},
    "delete, tried": {"method": lambda t, _, n: t.delete_run(n.run)},
    "retain": {"command": "checkpoints prune --run {run} --keep-last 1 --keep-every-steps 3 --yes"},
    "layout": {"command": "runs layout {run} --set batch.micro_sequences=4"},
    "drain": {"command": "nodes undrain {node}"},
    "rename": {"command": "runs edit {run} --notes a"},
    "note": {"command": "runs hold {run}"},
    "cancel": {"method": lambda t, _, n: t.pause(n.run)},
    "invite": {"command": "invitations create bob@example.org"},
    "set role": {"command": "members set-role {member} viewer"},
    "remove member": {"method": lambda t, *_: t.leave()},
}


@pytest.mark.parametrize("name", partly_slow(WRONG, ["fork", "pause many", "layout"], "databases"))
def test_an_interface_that_is_missing_or_sends_something_else_is_detected(
    scene: Scene, named: Named, served: Served, name: str
) -> None:
    action, key = ACTIONS[name]._replace(**WRONG[name]), key_of(scene.site.member("viewer"))
    if "method" in WRONG[name]:
        _by_client(action, served.url, key, named)
    else:
        _by_command(action, served, key, named)
    assert len(_differences(scene, action, named, served)) == 1


def test_spec_queries_are_the_same_through_all_interfaces(
    scene: Scene, served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = scene.spec(optimizer={"clip_norm": None}, seed=0)
    Path("spec.json").write_text(json.dumps(spec | {"seed": 1}))
    key = key_of(scene.site.member("viewer"))
    questions = {
        "submit": Action(f"POST {T}/runs", spec, lambda t, *_: t.submit(spec), "runs submit"),
        "check": Action(f"POST {T}/runs/validate", spec, lambda t, *_: t.validate(spec), "runs check"),
        "plan": Action(f"POST {T}/runs/plan", spec, lambda t, *_: t.plan_run(spec), "plan"),
        "what if": Action(
            f"POST {T}/runs/what-if",
            spec | {"resources": {"device": "cuda", "nodes": 1, "slots_per_node": 2}},
            lambda t, *_: t.what_if(
                spec | {"resources": {"device": "cuda", "nodes": 1, "slots_per_node": 2}}, L4
            ),
            "what-if --gpu L4 --count 2",
            {"gpu": L4},
        ),
        "estimate": Action(f"POST {T}/runs/estimate", spec, lambda t, *_: t.estimate(spec), "estimate"),
        "estimate of a fork": Action(
            f"POST {T}/runs/estimate",
            spec,
            lambda t, *_: t.estimate(spec, 4),
            "estimate --begin-step 4",
            {"begin_step": "4"},
        ),
    }
    nobody = Named(*("" for _ in Named._fields))
    for name, action in questions.items():
        refusal = _by_client(action, served.url, key, nobody)
        assert (refusal is not None) == (name == "submit")
        assert _differences(scene, action, nobody, served) == [], f"{name} by the client"
        done = served.command(key, f"{action.command} spec.json --set seed=0")
        assert done.exit_code == (1 if name == "submit" else 0), done.output
        assert _differences(scene, action, nobody, served) == [], f"{name} by the command line"


def _state_before_actions(scene: Scene, named: Named) -> object:
    run = scene.show(named.run)
    kept = scene.site.admin.get(f"{scene.runs}/{named.run}/checkpoints").json()
    runs = [(item["id"], item["state"]) for item in scene.site.admin.get(scene.runs).json()["items"]]
    (node,) = scene.site.admin.get("/api/v1/nodes").json()
    invited = scene.site.admin.get(INVITATIONS.format(team=scene.site.team)).json()
    team = [scene.site.admin.get(path.format(team=scene.site.team)).json() for path in (T, MEMBERS, SERVICES)]
    shown = [run[name] for name in ("state", "name", "notes", "tags", "spec")]
    return shown, kept, runs, node["draining"], invited, team[0]["name"], team[1:]


def test_every_route_that_changes_runs_is_listed_here(scene: Scene) -> None:
    found = {
        f"{method} {route.path}"
        for route in iter_route_contexts(scene.site.app.routes)
        for method in route.methods or ()
        if method not in ("GET", "HEAD", "OPTIONS")
        if str(route.path).startswith(
            (f"{T}/runs", f"{T}/queue", f"{T}/checkpoints", "/api/v1/nodes", INVITATIONS, MEMBERS, SERVICES)
        )
        or route.path == T
    }
    assert (
        found
        == {action.route for action in ACTIONS.values() if not action.route.startswith("GET")} | OTHER_ROUTES
    )


def _differences(scene: Scene, action: Action, named: Named, served: Served) -> list[object]:
    """Differences between an interface's request and the action's, as the route parses both; empty if none.

    Besides this one request, an interface may send GET requests, and ask for a plan or a check, which store nothing."""
    received = served.received.copy()
    served.received.clear()
    target = " ".join(_address(scene, action, named))
    reading = ("GET ", f"POST {scene.runs}/plan", f"POST {scene.runs}/validate")
    sent = [item for item in received if item.target == target or not item.target.startswith(reading)]
    if len(sent) != 1:
        return [sent]
    reads = _dependant(scene, action.route)
    query = {name: [value] for name, value in action.query.items()}
    wanted = _parsed(reads, ReceivedRequest(target, query, _filled(action.body, named)))
    got = _parsed(reads, sent[0])
    return [] if got == wanted else [(got, wanted)]


def _dependant(scene: Scene, wanted: str) -> Dependant:
    """The parts of a request that a route reads."""
    for route in iter_route_contexts(scene.site.app.routes):
        if wanted in {f"{method} {route.path}" for method in route.methods or ()}:
            found: Dependant = route.dependant
            return found
    raise AssertionError(f"there is no route {wanted}")


def _parsed(reads: Dependant, request: ReceivedRequest) -> object:
    """A request as its route parses it, with defaults filled in. An invalid request fails the test."""
    nested = [field for dependency in reads.dependencies for field in dependency.query_params]
    fields = {field.alias: field for field in (*reads.query_params, *nested)}
    assert request.query.keys() <= fields.keys(), "FastAPI ignores unknown parameters"
    query = {
        name: TypeAdapter(field.field_info.annotation).validate_python(request.query[name][0])
        if name in request.query
        else field.default
        for name, field in fields.items()
    }
    if not reads.body_params:
        return request.target, query, request.body
    (body,) = reads.body_params
    return (
        request.target,
        query,
        TypeAdapter(body.field_info.annotation).validate_json(json.dumps(request.body)),
    )


def _address(scene: Scene, action: Action, named: Named) -> tuple[str, str]:
    method, _, path = action.route.partition(" ")
    return method, path.format(team=scene.site.team, **named._asdict())


def _filled(body: Any, named: Named) -> Any:
    if isinstance(body, str):
        return body.format(**named._asdict())
    if isinstance(body, list):
        return [_filled(item, named) for item in body]
    return {key: _filled(one, named) for key, one in body.items()} if isinstance(body, dict) else body


def _by_client(action: Action, url: str, key: str, named: Named) -> tuple[int, str] | None:
    """Status and message of the refusal; None if the request succeeded."""
    with Client(url, key) as client:
        try:
            action.method(client.team("acme"), client, named)
        except ApiError as refused:
            return refused.status, refused.detail
    return None


def _by_command(action: Action, served: Served, key: str, named: Named) -> tuple[int, str] | None:
    """Exit code, and the output as one line; None if the command line has another action for it."""
    if action.command is None:
        return None
    done = served.command(key, action.command.format(**named._asdict()))
    return done.exit_code, " ".join(done.output.split())
