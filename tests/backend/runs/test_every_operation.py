"""Everything that people can do has a page, a call of the client and a command, for each operation of the API.

A server answers every request with an example of the operation's response, and records which operation it was. Whether the
requests are right is tested elsewhere (`tests/backend/runs/test_interfaces.py`, and the generated types of the pages).
"""

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import pytest
from typer.testing import CliRunner, Result

from trainwright import cli
from trainwright.client import Client, TeamClient
from trainwright.contracts.api.actions import Retention, RunAction, RunLayout
from trainwright.contracts.api.limits import MemberLimits, TeamLimits
from trainwright.contracts.api.notices import NoticeChoice, NoticeKind
from trainwright.contracts.api.people import Role
from trainwright.contracts.api.runs import RunGrouping, RunView
from trainwright.contracts.curation import CurationSpec
from trainwright.contracts.parallelism_spec import ParallelismSpec
from trainwright.transport.errors import UnexpectedResponseError

URL = "http://127.0.0.1:9"
Call = Callable[[TeamClient, Client], object]
SPEC = {"name": "pilot", "data": {"dataset": "ds_x"}}
CURATION = CurationSpec()
FILE = Path("letters.jsonl")
LAYOUT = RunLayout(parallelism=ParallelismSpec(), micro_sequences=1)


class Ways(NamedTuple):
    """How people do something, besides the page."""

    call: Call
    command: str


IN_BROWSERS_ONLY = "a browser's session has no meaning for programs, which have keys"
READ_BY_PAGES = "programs read the same from another operation"
EXCEPTIONS = {
    "get_health": "for load balancers",
    "get_link": IN_BROWSERS_ONLY,
    "finish_provider_sign_in": IN_BROWSERS_ONLY,
    "start_provider_sign_in": IN_BROWSERS_ONLY,
    "start_identity_link": IN_BROWSERS_ONLY,
    "get_sign_in_provider": IN_BROWSERS_ONLY,
    "sign_in": IN_BROWSERS_ONLY,
    "sign_out": IN_BROWSERS_ONLY,
    "use_link": IN_BROWSERS_ONLY,
    "get_blob": "signed addresses of objects, to which other operations redirect",
    "put_blob": "signed addresses of objects, for agents",
    "list_teams": READ_BY_PAGES,
    "list_series": READ_BY_PAGES,
    "show_names": READ_BY_PAGES,
    "stream_run_events": READ_BY_PAGES,
    "read_log_lines": READ_BY_PAGES,
    "search_log": READ_BY_PAGES,
    "download_checkpoint": READ_BY_PAGES,
    "get_team": READ_BY_PAGES,
    "list_logs": READ_BY_PAGES,
    "stream_metrics": "the client streams points, the command `runs watch` shows the newest ones",
    "show_metrics": "programs read it; pages and the command compare one run or several",
    "describe_uploads": "a part of the upload protocol",
    "show_upload": "a part of the upload protocol",
    "add_bytes": "a part of the upload protocol",
    "override_method": "a part of the upload protocol",
    "delete_upload": "the client deletes what it cannot complete; others expire",
    "cancel_run": "as one of several, by `act_on_runs`",
    "pause_run": "as one of several, by `act_on_runs`",
    "resume_run": "as one of several, by `act_on_runs`",
}
"""Operations without a command, and why."""

RUN, DATASET, TOKENIZER, RECIPE = (f"{prefix}_{'a' * 26}" for prefix in ("run", "ds", "tok", "recipe"))
"""An id: the command line looks for other words among the names of runs."""

WAYS: dict[str, Ways] = {
    "list_site_audit": Ways(lambda _, c: c.audit(), "audit site"),
    "export_site_audit": Ways(lambda _, c: c.export_audit(Path("log")), "audit export-site log"),
    "start_device_login": Ways(lambda _, c: c.start_device_login("a"), "login --server {server}"),
    "redeem_device_code": Ways(lambda _, c: c.redeem_device_code("a"), "login --server {server}"),
    "delete_used_key": Ways(lambda _, c: c.revoke_used_key(), "logout --server {server}"),
    "mail_link": Ways(lambda _, c: c.mail_sign_in_link("a@b.example"), "account confirm"),
    "create_join_token": Ways(lambda _, c: c.create_join_token("a"), "nodes join-token a"),
    "get_me": Ways(lambda _, c: c.me(), "account show"),
    "change_profile": Ways(lambda _, c: c.change_name("a"), "account rename a"),
    "delete_account": Ways(lambda _, c: c.delete_account("a"), "account delete"),
    "get_device_request": Ways(lambda _, c: c.device_request("a"), "keys approve a --yes"),
    "decide_device_login": Ways(
        lambda _, c: c.decide_device_login("a", approve=True), "keys approve a --yes"
    ),
    "list_keys": Ways(lambda _, c: c.api_keys(), "keys list"),
    "create_key": Ways(lambda _, c: c.create_key("a"), "keys create a"),
    "delete_key": Ways(lambda _, c: c.revoke_key("a"), "keys revoke a"),
    "list_notices": Ways(lambda _, c: c.notices(), "notices list"),
    "mark_notices_read": Ways(lambda _, c: c.mark_notices_read(), "notices read"),
    "get_notice_settings": Ways(lambda _, c: c.notice_settings(), "notices settings"),
    "change_notice_settings": Ways(
        lambda _, c: c.choose_notices(NoticeChoice(kind=NoticeKind.RUN_FAILED, app=True, mail=False)),
        f"notices choose {next(iter(NoticeKind))} --mail",
    ),
    "list_identities": Ways(lambda _, c: c.identities(), "account identities"),
    "unlink_identity": Ways(lambda _, c: c.unlink_identity("a"), "account unlink a"),
    "change_password": Ways(lambda _, c: c.change_password("a", "b"), "account password"),
    "list_sessions": Ways(lambda _, c: c.sessions(), "sessions list"),
    "end_session": Ways(lambda _, c: c.end_session("a"), "sessions end a"),
    "list_nodes": Ways(lambda _, c: c.nodes(), "nodes list"),
    "get_node_load": Ways(lambda _, c: c.node_load("a"), "nodes load node_a"),
    "delete_node": Ways(lambda _, c: c.delete_node("a"), "nodes delete node_a"),
    "edit_node": Ways(lambda _, c: c.set_draining("a", True), "nodes drain node_a"),
    "get_spec": Ways(lambda _, c: c.spec(), "what-if spec.json --gpu a"),
    "create_team": Ways(lambda _, c: c.create_team("crew", "Crew"), "teams create crew Crew"),
    "delete_team": Ways(lambda t, _: t.delete_team("crew"), "teams delete --confirm crew"),
    "rename_team": Ways(lambda t, _: t.rename("a"), "teams rename a"),
    "list_audit": Ways(lambda t, _: t.audit(), "audit list"),
    "export_audit": Ways(lambda t, _: t.export_audit(Path("log")), "audit export log"),
    "list_team_checkpoints": Ways(lambda t, _: t.all_checkpoints(), "checkpoints list"),
    "retain_checkpoints": Ways(lambda t, _: t.retain(Retention()), "checkpoints prune --yes"),
    "list_datasets": Ways(lambda t, _: t.datasets(), "datasets list"),
    "create_dataset": Ways(lambda t, _: t.mix("a", CURATION), "datasets mix a curation.json"),
    "count_curation": Ways(lambda t, _: t.count(CURATION), "datasets count curation.json"),
    "delete_dataset": Ways(lambda t, _: t.delete_dataset("a"), f"datasets delete {DATASET}"),
    "get_dataset": Ways(lambda t, _: t.dataset("a"), f"datasets show {DATASET}"),
    "create_preparation": Ways(lambda t, _: t.prepare("a"), f"datasets prepare {DATASET}"),
    "cancel_preparation": Ways(
        lambda t, _: t.cancel_preparation("a", "b"), f"datasets cancel-preparation {DATASET} b"
    ),
    "create_dataset_version": Ways(
        lambda t, _: t.change_curation("a", CURATION), f"datasets curate {DATASET} curation.json"
    ),
    "delete_dataset_version": Ways(
        lambda t, _: t.delete_version("a", 1), f"datasets delete {DATASET} --version 1"
    ),
    "list_documents": Ways(lambda t, _: t.documents("a", 1), f"datasets documents {DATASET} --version 1"),
    "list_rejected": Ways(
        lambda t, _: t.rejected_documents("a", 1), f"datasets rejected {DATASET} --version 1"
    ),
    "list_invitations": Ways(lambda t, _: t.invitations(), "invitations list"),
    "create_invitation": Ways(lambda t, _: t.invite("a@b.example"), "invitations create a@b.example"),
    "revoke_invitation": Ways(lambda t, _: t.revoke_invitation("a"), "invitations revoke a"),
    "show_limits": Ways(lambda t, _: t.limits(), "limits show"),
    "set_limits": Ways(lambda t, _: t.set_limits(TeamLimits()), "limits set queued_runs=5"),
    "list_member_limits": Ways(lambda t, _: t.member_limits(), "limits members"),
    "set_member_limits": Ways(
        lambda t, _: t.set_member_limits("a", MemberLimits()), "limits set-member user_a queued_runs=5"
    ),
    "list_members": Ways(lambda t, _: t.members(), "members list"),
    "leave_team": Ways(lambda t, _: t.leave(), "members leave"),
    "remove_member": Ways(lambda t, _: t.remove_member("a"), "members remove user_a"),
    "change_role": Ways(lambda t, _: t.change_role("a", Role.EDITOR), "members set-role user_a editor"),
    "show_metrics_of_runs": Ways(
        lambda t, _: t.compare_metrics(["a", "b"]), f"runs compare {RUN} {RUN} --metric loss"
    ),
    "list_queue": Ways(lambda t, _: t.queue(), "queue list"),
    "reorder": Ways(lambda t, _: t.reorder(["a", "b"]), f"queue reorder {RUN} {RUN}"),
    "set_quota": Ways(lambda t, _: t.set_slots("cpu", 2), "limits slots cpu 2"),
    "list_recipes": Ways(lambda t, _: t.recipes(), "recipes list"),
    "save_recipe": Ways(lambda t, _: t.save_recipe("a", SPEC), "recipes save a spec.json"),
    "delete_recipe": Ways(lambda t, _: t.delete_recipe("a"), f"recipes delete {RECIPE}"),
    "list_runs": Ways(lambda t, _: t.runs(), "runs list"),
    "submit_run": Ways(lambda t, _: t.submit(SPEC), "runs submit spec.json"),
    "act_on_runs": Ways(lambda t, _: t.act(RunAction.PAUSE, ["a"]), f"runs pause {RUN}"),
    "estimate_run": Ways(lambda t, _: t.estimate(SPEC), "estimate spec.json"),
    "export_runs": Ways(lambda t, _: t.export_runs(Path("runs.csv")), "runs export runs.csv"),
    "list_groups": Ways(lambda t, _: t.run_groups(RunGrouping.TAG), "runs list --group tag"),
    "plan_run": Ways(lambda t, _: t.plan_run(SPEC), "plan spec.json"),
    "validate_run": Ways(lambda t, _: t.validate(SPEC), "runs check spec.json"),
    "plan_elsewhere": Ways(lambda t, _: t.what_if(SPEC, "a"), "what-if spec.json --gpu a"),
    "delete_run": Ways(lambda t, _: t.delete_run("a"), f"runs delete {RUN} --dry-run"),
    "show_run": Ways(lambda t, _: t.run("a"), f"runs show {RUN}"),
    "edit_run": Ways(lambda t, _: t.edit("a", name="b"), f"runs edit {RUN} --name b"),
    "list_checkpoints": Ways(lambda t, _: t.checkpoints("a"), f"runs checkpoints {RUN}"),
    "delete_checkpoint": Ways(lambda t, _: t.delete_checkpoint("a", "b"), f"checkpoints delete {RUN} b"),
    "edit_checkpoint": Ways(lambda t, _: t.pin("a", "b"), f"checkpoints pin {RUN} b"),
    "list_checkpoint_files": Ways(
        lambda t, _: t.download("a", Path("there"), "b"), f"runs download {RUN} there --checkpoint b"
    ),
    "clone_run": Ways(lambda t, _: t.clone("a", "b"), f"runs clone {RUN} b"),
    "list_run_events": Ways(lambda t, _: t.events("a"), f"runs events {RUN}"),
    "fork_run": Ways(lambda t, _: t.fork("a", "b"), f"runs fork {RUN} b"),
    "change_layout": Ways(lambda t, _: t.change_layout("a", LAYOUT), f"runs layout {RUN}"),
    "read_log": Ways(lambda t, _: t.log_text("a", 1, "b"), f"runs logs {RUN}"),
    "move_run": Ways(lambda t, _: t.move("a", "b"), f"runs move {RUN} --off b"),
    "list_run_samples": Ways(lambda t, _: t.samples("a"), f"runs samples {RUN}"),
    "list_service_accounts": Ways(lambda t, _: t.service_accounts(), "service-accounts list"),
    "create_service_account": Ways(lambda t, _: t.create_service_account("a"), "service-accounts create a"),
    "delete_service_account": Ways(
        lambda t, _: t.delete_service_account("a"), "service-accounts delete user_a"
    ),
    "create_service_key": Ways(
        lambda t, _: t.create_service_key("a", "b"), "service-accounts create-key user_a b"
    ),
    "delete_service_key": Ways(
        lambda t, _: t.revoke_service_key("a", "b"), "service-accounts revoke-key user_a b"
    ),
    "set_storage": Ways(lambda t, _: t.set_storage(5), "limits files 5"),
    "list_tokenizers": Ways(lambda t, _: t.tokenizers(), "tokenizers list"),
    "create_tokenizer": Ways(lambda t, _: t.upload_tokenizer("a", FILE), "tokenizers upload a letters.jsonl"),
    "delete_tokenizer": Ways(lambda t, _: t.delete_tokenizer("a"), f"tokenizers delete {TOKENIZER}"),
    "list_uploads": Ways(lambda t, _: t.uploads(), "datasets uploads"),
    "create_upload": Ways(lambda t, _: t.upload("a", [FILE]), "datasets upload a letters.jsonl --no-wait"),
    "preview_uploads": Ways(lambda t, _: t.preview([FILE]), "datasets preview letters.jsonl"),
    "show_usage": Ways(lambda t, _: t.usage(), "usage"),
    "list_member_usage": Ways(lambda t, _: t.member_usage(), "usage --csv"),
    "list_run_usage": Ways(lambda t, _: t.run_usage(), "usage --csv-by-run"),
    "list_views": Ways(lambda t, _: t.views(), "runs views"),
    "save_view": Ways(lambda t, _: t.save_view("a", RunView()), "runs save-view a"),
    "delete_view": Ways(lambda t, _: t.delete_view("a"), "runs delete-view a"),
    "list_webhooks": Ways(lambda t, _: t.webhooks(), "webhooks list"),
    "create_webhook": Ways(
        lambda t, _: t.create_webhook("https://a.example"), "webhooks create https://a.example"
    ),
    "delete_webhook": Ways(lambda t, _: t.delete_webhook("a"), "webhooks delete a"),
    "test_webhook": Ways(lambda t, _: t.test_webhook("a"), "webhooks test a"),
}

LINKS = {
    "export_audit": "/audit/export`",
    "export_site_audit": '"/api/v1/audit/export"',
    "export_runs": "/runs/export?",
    "create_upload": "/uploads`",
    "list_checkpoint_files": "/archive`",
}
"""Operations that pages use by an address, or do in another way: a part of it in their sources."""

NO_PAGE = {
    "start_device_login": "for programs, which a person approves on a page",
    "redeem_device_code": "for programs, which a person approves on a page",
    "delete_used_key": "pages have no key",
}
DOCUMENT = json.loads((Path(__file__).parents[3] / "frontend" / "openapi.json").read_text())
OPERATIONS = {
    operation["operationId"]: (method.upper(), path)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if not path.startswith("/api/v1/agent/")
}


LOOKED_UP = ("get_notice_settings", "get_spec", "list_views")


class Server:
    """Answers with examples of the operations' responses, and remembers the operations."""

    def __init__(self) -> None:
        self.received: set[str] = set()

    def respond(self, request: httpx.Request) -> httpx.Response:
        body, path = request.read(), request.url.path
        name = next(
            name
            for name, (method, route) in OPERATIONS.items()
            if method == request.method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", route), path)
        )
        self.received.add(name)
        method, route = OPERATIONS[name]
        status, response = next(iter(DOCUMENT["paths"][route][method.lower()]["responses"].items()))
        content = response.get("content", {}).get("application/json")
        sent = None if content is None else example(content["schema"], name)
        headers = {"Location": "/uploads/up_a", "Upload-Offset": str(len(body))}
        return httpx.Response(int(status), headers=headers, json=sent)


def example(schema: dict[str, Any], name: str) -> Any:
    """A value that the schema allows. Lists are empty, but for those in which commands look something up."""
    if name == "list_uploads" and schema.get("type") == "array":
        upload = example(schema["items"], "")
        return [upload | {"id": "up_a", "digest": hashlib.sha256(FILE.read_bytes()).hexdigest()}]
    if "$ref" in schema:
        return example(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]], name)
    if schema.get("type") == "array" and name in LOOKED_UP:
        return [example(schema["items"], name)]
    if "default" in schema or "const" in schema or "enum" in schema:
        return schema.get("default", schema.get("const", schema.get("enum", [None])[0]))
    if "anyOf" in schema:
        return example(schema["anyOf"][0], name)
    if schema.get("type") == "object":
        wanted = {*schema.get("required", ()), *({"gpus"} & schema.get("properties", {}).keys())}
        fields = {key: example(schema["properties"][key], name) for key in wanted}
        return {"next_cursor": None} | fields if "next_cursor" in schema.get("properties", ()) else fields
    values = {"array": [], "integer": schema.get("minimum", 1), "number": 1.0, "boolean": True}
    formats = {"date-time": "2026-01-01T00:00:00Z", "date": "2026-01-01"}
    return values.get(schema.get("type", ""), formats.get(schema.get("format", ""), "a"))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "trainwright.commands.login.time", SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic)
    )
    Path("spec.json").write_text(json.dumps(SPEC))
    Path("curation.json").write_text(CURATION.model_dump_json())
    FILE.write_text('{"text": "a"}\n')
    made = Server()
    connected = partial(httpx.Client, transport=httpx.MockTransport(made.respond))
    monkeypatch.setattr("trainwright.transport.connection.httpx.Client", connected)
    return made


def test_every_operation_is_listed() -> None:
    assert OPERATIONS.keys() == WAYS.keys() | EXCEPTIONS.keys()
    assert not WAYS.keys() & EXCEPTIONS.keys()


def test_the_client_has_a_call_for_every_operation(server: Server) -> None:
    missing = []
    for name, ways in WAYS.items():
        server.received.clear()
        # The example may be nothing that the call can continue with.
        with Client(URL, "tw_key") as client, contextlib.suppress(ValueError, UnexpectedResponseError):
            ways.call(client.team("crew"), client)
        missing += [] if name in server.received else [name]
    assert missing == []


@pytest.mark.slow(target="databases")
def test_the_command_line_has_a_command_for_every_operation(server: Server) -> None:
    missing = {}
    for name, ways in WAYS.items():
        server.received.clear()
        typed = "old password\nnew password\nnew password\n"
        done = run(ways.command, typed)
        if name not in server.received:
            missing[ways.command] = done.output
    assert missing == {}


def run(command: str, typed: str | None = None) -> Result:
    names = {"SERVER": URL, "KEY": "tw_key", "TEAM": "crew"}
    environment = {f"TRAINWRIGHT_{name}": value for name, value in names.items()}
    return CliRunner().invoke(cli.app, command.format(server=URL).split(), typed, environment)


def test_the_pages_use_every_operation() -> None:
    sources = Path(__file__).parents[3] / "frontend" / "src"
    text = "".join(path.read_text() for path in sources.rglob("*.ts*") if path.name != "schema.d.ts")
    used = set(re.findall(r"\.(GET|POST|PUT|PATCH|DELETE)\(\s*[\"`](/api/v1/[^\"`]+)", text))
    missing = {
        name
        for name in WAYS
        if OPERATIONS[name] not in used and (name not in LINKS or LINKS[name] not in text)
    }
    assert missing == NO_PAGE.keys()


@pytest.mark.slow(target="databases")
def test_commands_that_print_a_response_can_print_it_as_json(server: Server) -> None:
    refused = {}
    for command in sorted({ways.command for ways in WAYS.values()}):
        if set(command.split()) & {"list", "show", "create", "compare"}:
            done = run(f"{command} --json")
            if done.exit_code or not isinstance(json.loads(done.stdout), dict | list):
                refused[command] = done.output
    assert refused == {}
