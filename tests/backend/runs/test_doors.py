"""Every verb of a run has three doors that lead to the same route: HTTP, the client and the command line.

The doors are tried by a viewer against a served API, so what each says is that route's refusal; what each sent is compared as the
route itself reads it. The pages are watched in a browser elsewhere. So it is with invitations. A route that changes something about
runs, checkpoints, nodes or invitations and stands neither here nor among those that are no verbs of a run fails the test.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts
from pydantic import TypeAdapter

from tests.backend.runs.conftest import Heard, Served
from tests.backend.scripted_agent import Scene, Work
from trainwright.client import Client, TeamClient
from trainwright.connection import ApiError
from trainwright.contracts.api.people import Role
from trainwright.contracts.api.verbs import BulkVerb, Retention, RunLayout
from trainwright.contracts.parallelism_spec import ParallelismSpec

T = "/api/v1/teams/{team}"
R = f"{T}/runs/{{run}}"
C = f"{R}/checkpoints/{{checkpoint}}"
NODE = "/api/v1/nodes/{node}"
INVITATIONS = f"{T}/invitations"


class Named(NamedTuple):
    """What the doors are asked about."""

    run: str
    other: str
    checkpoint: str
    node: str
    invitation: str


Method = Callable[[TeamClient, Client, Named], object]


class Verb(NamedTuple):
    """One thing that people do with a run, and its doors."""

    route: str
    body: dict[str, Any] | None
    """What the route is to be told. Here and in the command, names in braces are those of what is asked about."""

    method: Method
    command: str | None
    """None: the verb for many runs is the command line's for one too."""

    query: dict[str, str] = {}
    least: str = "editor"


def many(verb: BulkVerb, *tags: str) -> Verb:
    option = {BulkVerb.TAG: "--add", BulkVerb.UNTAG: "--remove"}.get(verb)
    words = [
        "runs",
        verb.value if option is None else "tag",
        "{run}",
        "{other}",
        *(f"{option} {tag}" for tag in tags),
    ]
    return Verb(
        f"POST {T}/runs/bulk",
        {"verb": verb.value, "runs": ["{run}", "{other}"], "tags": list(tags)},
        lambda t, _, n: t.act(verb, [n.run, n.other], tags),
        " ".join(words),
    )


RULE = Retention(keep_last=1, keep_every_steps=3, delete_exports=True, dry_run=False)
LAYOUT = RunLayout(parallelism=ParallelismSpec(zero_stage=1), micro_sequences=4)
CHANGES = {"schedule.steps": 20, "optimizer.clip_norm": None}
SETS = "--set schedule.steps=20 --set optimizer.clip_norm="
ONE_OF_MANY: dict[str, Verb] = {
    "pause": Verb(f"POST {R}/pause", None, lambda t, _, n: t.pause(n.run), None),
    "resume": Verb(f"POST {R}/resume", None, lambda t, _, n: t.resume(n.run), None),
    "cancel": Verb(f"POST {R}/cancel", None, lambda t, _, n: t.cancel(n.run), None),
    "delete": Verb(f"DELETE {R}", None, lambda t, _, n: t.delete_run(n.run), None),
}
VERBS: dict[str, Verb] = {
    **ONE_OF_MANY,
    **{
        f"{verb} many": many(verb, *(("a", "b") if verb in (BulkVerb.TAG, BulkVerb.UNTAG) else ()))
        for verb in BulkVerb
    },
    "delete, tried": Verb(
        f"DELETE {R}",
        None,
        lambda t, _, n: t.delete_run(n.run, dry_run=True),
        "runs delete {run} --dry-run",
        {"dry_run": "true"},
    ),
    "fork": Verb(
        f"POST {R}/fork",
        {"name": "a", "changes": CHANGES, "checkpoint": "{checkpoint}"},
        lambda t, _, n: t.fork(n.run, "a", CHANGES, n.checkpoint),
        f"runs fork {{run}} a --checkpoint {{checkpoint}} {SETS}",
    ),
    "clone": Verb(
        f"POST {R}/clone",
        {"name": "a", "changes": CHANGES},
        lambda t, _, n: t.clone(n.run, "a", CHANGES),
        f"runs clone {{run}} a {SETS}",
    ),
    "note": Verb(
        f"PATCH {R}", {"notes": "a"}, lambda t, _, n: t.edit(n.run, notes="a"), "runs edit {run} --notes a"
    ),
    "rename": Verb(
        f"PATCH {R}", {"name": "a"}, lambda t, _, n: t.edit(n.run, name="a"), "runs edit {run} --name a"
    ),
    "retain": Verb(
        f"POST {T}/checkpoints/retention",
        {"runs": ["{run}"], **RULE.model_dump(exclude={"runs"})},
        lambda t, _, n: t.retain(RULE.model_copy(update={"runs": (n.run,)})),
        "checkpoints retain --run {run} --keep-last 1 --keep-every-steps 3 --delete-exports --delete",
    ),
    "retain, tried": Verb(
        f"POST {T}/checkpoints/retention", {}, lambda t, _, n: t.retain(Retention()), "checkpoints retain"
    ),
    "pin": Verb(
        f"PATCH {C}",
        {"pinned": True},
        lambda t, _, n: t.pin(n.run, n.checkpoint),
        "checkpoints pin {run} {checkpoint}",
    ),
    "unpin": Verb(
        f"PATCH {C}",
        {"pinned": False},
        lambda t, _, n: t.pin(n.run, n.checkpoint, pinned=False),
        "checkpoints unpin {run} {checkpoint}",
    ),
    "delete checkpoint": Verb(
        f"DELETE {C}",
        None,
        lambda t, _, n: t.delete_checkpoint(n.run, n.checkpoint),
        "checkpoints delete {run} {checkpoint}",
    ),
    "layout": Verb(
        f"PUT {R}/layout",
        {"parallelism": {"zero_stage": 1}, "micro_sequences": 4},
        lambda t, _, n: t.change_layout(n.run, LAYOUT),
        "layout {run} --set parallelism.zero_stage=1 --set batch.micro_sequences=4",
    ),
    "download": Verb(
        f"GET {C}/files",
        None,
        lambda t, _, n: t.download(n.run, Path("there"), n.checkpoint),
        "runs download {run} there --checkpoint {checkpoint}",
        least="viewer",
    ),
    "drain": Verb(
        f"PATCH {NODE}",
        {"draining": True},
        lambda _, c, n: c.set_draining(n.node, True),
        "nodes drain {node}",
        least="site admin",
    ),
    "undrain": Verb(
        f"PATCH {NODE}",
        {"draining": False},
        lambda _, c, n: c.set_draining(n.node, False),
        "nodes undrain {node}",
        least="site admin",
    ),
    "invite": Verb(
        f"POST {INVITATIONS}",
        {"email": "bob@example.org", "role": "editor"},
        lambda t, *_: t.invite("bob@example.org", Role.EDITOR),
        "invitations create bob@example.org --role editor",
        least="owner",
    ),
    "invitations": Verb(
        f"GET {INVITATIONS}", None, lambda t, *_: t.invitations(), "invitations list", least="owner"
    ),
    "revoke": Verb(
        f"DELETE {INVITATIONS}/{{invitation}}",
        None,
        lambda t, _, n: t.revoke_invitation(n.invitation),
        "invitations revoke {invitation}",
        least="owner",
    ),
}
NO_VERBS = {
    f"POST {T}/runs",
    f"POST {T}/runs/validate",
    f"POST {T}/runs/plan",
    f"POST {T}/runs/estimate",
    f"DELETE {NODE}",
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
    new = {"email": "ann@example.org", "role": "viewer"}
    invited = scene.site.admin.post(INVITATIONS.format(team=scene.site.team), json=new).json()
    return Named(work.run_id, scene.submit(), checkpoint["id"], node["id"], invited["id"])


def test_every_verb_says_the_same_at_all_doors_and_a_viewer_hears_the_same_refusal(
    scene: Scene, named: Named, served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    viewer = scene.site.member("viewer")
    key = _key_of(viewer)
    before = _what_verbs_change(scene, named)
    for name, verb in VERBS.items():
        method, address = _address(scene, verb, named)
        answer = viewer.request(method, address, json=_filled(verb.body, named), params=verb.query)
        by_client = _by_client(verb, served.url, key, named)
        assert _heard_otherwise(scene, verb, named, served) == [], f"{name} by the client"
        by_command = _by_command(verb, served, key, named)
        if by_command is not None:
            assert _heard_otherwise(scene, verb, named, served) == [], f"{name}: {by_command}"
        if verb.least == "viewer":
            assert (answer.status_code, by_client) == (200, None), name
            assert by_command is not None and by_command[0] == 0, name
            continue
        assert (answer.status_code, by_client) == (403, (403, answer.json()["detail"])), name
        if verb.least == "editor":
            assert answer.json()["detail"] == (
                "This needs the role editor in acme; yours is viewer. Ask an owner of the team."
            )
        if by_command is not None:
            assert by_command[0] == 1 and answer.json()["detail"] in by_command[1], name
    assert _what_verbs_change(scene, named) == before


def test_the_command_line_s_verbs_for_many_runs_are_those_for_one(named: Named) -> None:
    bodies = [verb.body or {} for verb in VERBS.values() if verb.route == f"POST {T}/runs/bulk"]
    assert {body["verb"] for body in bodies} == set(BulkVerb), "and no verb for many is without its doors"
    assert set(ONE_OF_MANY) <= {body["verb"] for body in bodies}


WRONG: dict[str, dict[str, Any]] = {
    "fork": {"method": lambda t, _, n: t.fork(n.run, "a", CHANGES)},
    "clone": {"method": lambda t, _, n: t.clone(n.run, "a", {"schedule.steps": 21})},
    "pin": {"method": lambda t, _, n: t.pin(n.run, n.checkpoint, pinned=False)},
    "pause many": {"method": lambda t, _, n: t.act(BulkVerb.CANCEL, [n.run, n.other])},
    "resume many": {"method": lambda t, _, n: t.act(BulkVerb.RESUME, [n.other, n.run])},
    "tag many": {"command": "runs tag {run} {other} --add a"},
    "untag many": {"command": "runs tag {run} {other} --add a --add b"},
    "delete, tried": {"method": lambda t, _, n: t.delete_run(n.run)},
    "retain": {"command": "checkpoints retain --run {run} --keep-last 1 --keep-every-steps 3 --delete"},
    "layout": {"command": "layout {run} --set batch.micro_sequences=4"},
    "drain": {"command": "nodes undrain {node}"},
    "rename": {"command": "runs edit {run} --notes a"},
    "note": {"command": "runs hold {run}"},
    "cancel": {"method": lambda t, _, n: t.pause(n.run)},
    "invite": {"command": "invitations create bob@example.org"},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_door_that_says_something_else_or_is_not_there_is_noticed(
    scene: Scene, named: Named, served: Served, name: str
) -> None:
    verb, key = VERBS[name]._replace(**WRONG[name]), _key_of(scene.site.member("viewer"))
    if "method" in WRONG[name]:
        _by_client(verb, served.url, key, named)
    else:
        _by_command(verb, served, key, named)
    assert len(_heard_otherwise(scene, verb, named, served)) == 1


def test_an_owner_invites_looks_and_revokes_by_command(scene: Scene, served: Served) -> None:
    key = _key_of(scene.site.admin)
    typo = served.command(key, "invitations create bob")
    assert typo.exit_code == 1
    assert typo.output.strip() == "email: Write an e-mail address, such as ana@example.org."
    made = served.command(key, "invitations create Bob@example.org --role editor")
    token = made.output.strip().rpartition("/link/")[2]
    assert scene.site.admin.get(f"/api/v1/auth/link/{token}").json()["email"] == "bob@example.org"
    listed = served.command(key, "invitations list").output
    (invitation,) = (line.split()[0] for line in listed.splitlines() if "bob@example.org  editor" in line)
    assert token not in listed
    assert served.command(key, f"invitations revoke {invitation}").exit_code == 0
    assert "bob@example.org" not in served.command(key, "invitations list").output
    again = served.command(key, f"invitations revoke {invitation}")
    assert again.exit_code == 1 and "no invitation" in " ".join(again.output.split())


def test_a_question_about_a_spec_is_the_same_at_all_doors(
    scene: Scene, served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = scene.spec(optimizer={"clip_norm": None}, seed=0)
    Path("spec.json").write_text(json.dumps(spec | {"seed": 1}))
    key = _key_of(scene.site.member("viewer"))
    questions = {
        "submit": Verb(f"POST {T}/runs", spec, lambda t, *_: t.submit(spec), "runs submit"),
        "check": Verb(f"POST {T}/runs/validate", spec, lambda t, *_: t.validate(spec), "runs check"),
        "plan": Verb(f"POST {T}/runs/plan", spec, lambda t, *_: t.plan_run(spec), "plan"),
        "estimate": Verb(f"POST {T}/runs/estimate", spec, lambda t, *_: t.estimate(spec), "estimate"),
        "estimate of a fork": Verb(
            f"POST {T}/runs/estimate",
            spec,
            lambda t, *_: t.estimate(spec, 4),
            "estimate --begin-step 4",
            {"begin_step": "4"},
        ),
    }
    nobody = Named("", "", "", "", "")
    for name, verb in questions.items():
        refusal = _by_client(verb, served.url, key, nobody)
        assert (refusal is not None) == (name == "submit")
        assert _heard_otherwise(scene, verb, nobody, served) == [], f"{name} by the client"
        done = served.command(key, f"{verb.command} spec.json --set seed=0")
        assert done.exit_code == (1 if name == "submit" else 0), done.output
        assert _heard_otherwise(scene, verb, nobody, served) == [], f"{name} by the command line"


def _what_verbs_change(scene: Scene, named: Named) -> object:
    run = scene.show(named.run)
    kept = scene.site.admin.get(f"{scene.runs}/{named.run}/checkpoints").json()
    runs = [(one["id"], one["state"]) for one in scene.site.admin.get(scene.runs).json()["items"]]
    (node,) = scene.site.admin.get("/api/v1/nodes").json()
    invited = scene.site.admin.get(INVITATIONS.format(team=scene.site.team)).json()
    said = [run[name] for name in ("state", "name", "notes", "tags", "spec")]
    return said, kept, runs, node["draining"], invited


def test_every_route_that_changes_something_about_runs_is_a_verb_here(scene: Scene) -> None:
    found = {
        f"{method} {route.path}"
        for route in iter_route_contexts(scene.site.app.routes)
        for method in route.methods or ()
        if method not in ("GET", "HEAD", "OPTIONS")
        if str(route.path).startswith((f"{T}/runs", f"{T}/checkpoints", "/api/v1/nodes", INVITATIONS))
    }
    assert found == {verb.route for verb in VERBS.values() if not verb.route.startswith("GET")} | NO_VERBS


def _heard_otherwise(scene: Scene, verb: Verb, named: Named, served: Served) -> list[object]:
    """What a door said that is not what the verb is to say, as its route reads either; nothing: all is well.

    Besides its one request a door may look (GET)."""
    heard = served.heard.copy()
    served.heard.clear()
    asked = " ".join(_address(scene, verb, named))
    said = [one for one in heard if one.asked == asked or not one.asked.startswith("GET")]
    if len(said) != 1:
        return [said]
    reads = _dependant(scene, verb.route)
    query = {name: [value] for name, value in verb.query.items()}
    wanted = _as_read(reads, Heard(asked, query, _filled(verb.body, named)))
    got = _as_read(reads, said[0])
    return [] if got == wanted else [(got, wanted)]


def _dependant(scene: Scene, wanted: str) -> Dependant:
    """What a route reads of a request."""
    for route in iter_route_contexts(scene.site.app.routes):
        if wanted in {f"{method} {route.path}" for method in route.methods or ()}:
            found: Dependant = route.dependant  # type: ignore[attr-defined]
            return found
    raise AssertionError(f"there is no route {wanted}")


def _as_read(reads: Dependant, heard: Heard) -> object:
    """A request by its route's own contract: what was left out is what its default says, and what it refuses is not read."""
    fields = {field.alias: field for field in reads.query_params}
    assert heard.query.keys() <= fields.keys(), "FastAPI leaves out what it does not know"
    query = {
        name: TypeAdapter(field.field_info.annotation).validate_python(heard.query[name][0])
        if name in heard.query
        else field.default
        for name, field in fields.items()
    }
    if not reads.body_params:
        return heard.asked, query, heard.body
    (body,) = reads.body_params
    return heard.asked, query, TypeAdapter(body.field_info.annotation).validate_json(json.dumps(heard.body))


def _address(scene: Scene, verb: Verb, named: Named) -> tuple[str, str]:
    method, _, path = verb.route.partition(" ")
    return method, path.format(team=scene.site.team, **named._asdict())


def _filled(body: Any, named: Named) -> Any:
    if isinstance(body, str):
        return body.format(**named._asdict())
    if isinstance(body, list):
        return [_filled(one, named) for one in body]
    return {key: _filled(one, named) for key, one in body.items()} if isinstance(body, dict) else body


def _key_of(person: Any) -> str:
    secret: str = person.headers["Authorization"].removeprefix("Bearer ")
    return secret


def _by_client(verb: Verb, url: str, key: str, named: Named) -> tuple[int, str] | None:
    """Status and sentence of the refusal; None where it was done."""
    with Client(url, key) as client:
        try:
            verb.method(client.team("acme"), client, named)
        except ApiError as refused:
            return refused.status, refused.detail
    return None


def _by_command(verb: Verb, served: Served, key: str, named: Named) -> tuple[int, str] | None:
    """Exit code, and what was printed as one line; None: it has another verb for it."""
    if verb.command is None:
        return None
    done = served.command(key, verb.command.format(**named._asdict()))
    return done.exit_code, " ".join(done.output.split())
