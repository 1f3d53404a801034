"""Entries of the audit log as sentences."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainwright.contracts.api.audit import AuditEntry, AuditObject
from trainwright_backend.auth.audit_sentences import label_of, recorded_names, sentence_of

TEAM = "/api/v1/teams/lab"


def entry(action: str, path: str, details: str = "") -> AuditEntry:
    return AuditEntry(
        sequence=1,
        time=datetime(2026, 1, 31, 9, tzinfo=UTC),
        user="user_aaaaa",
        name="Ada",
        via="browser",
        address="127.0.0.1",
        action=action,
        path=path,
        details=details,
        request_id="",
        hash="",
    )


def text_of(action: str, path: str, details: str, names: Mapping[str, str] = {}) -> str:
    return " ".join(part.text for part in sentence_of(entry(action, path, details), names))


@pytest.mark.parametrize(
    ("action", "path", "details", "expected"),
    [
        ("delete_run", f"{TEAM}/runs/run_aavm77m", "", "Deleted run run_aavm77m"),
        ("delete_run", f"{TEAM}/runs/run_a", '?dry_run=false {"name": "pilot"}', "Deleted run pilot"),
        ("delete_run", f"{TEAM}/runs/run_a", "?dry_run=true", "Previewed deletion of run run_a"),
        (
            "delete_service_key",
            f"{TEAM}/service-accounts/user_c/keys/key_d",
            '{"name": "ci"}',
            "Revoked key ci of service account user_c",
        ),
        ("retain_checkpoints", f"{TEAM}/checkpoints/retention", "{}", "Previewed clean-up of checkpoints"),
        (
            "retain_checkpoints",
            f"{TEAM}/checkpoints/retention",
            '{"dry_run": false}',
            "Cleaned up checkpoints",
        ),
        (
            "use_link",
            "/api/v1/auth/link",
            '{"purpose": "first_owner", "name": "Ada"}',
            "Created the first account as Ada",
        ),
        ("use_link", "/api/v1/auth/link", '{"purpose": "invitation"}', "Accepted an invitation"),
        (
            "use_link",
            "/api/v1/auth/link",
            '{"purpose": "sign_in", "password": null}',
            "Signed in with a link",
        ),
        (
            "use_link",
            "/api/v1/auth/link",
            '{"purpose": "sign_in", "password": "..."}',
            "Signed in with a link and set a new password",
        ),
        ("use_link", "/api/v1/auth/link", '{"token": "..."}', "Used a one-time link"),
        ("submit_run", f"{TEAM}/runs", '?priority=high {"name": "pilot"}', "Submitted run pilot"),
        (
            "submit_run",
            f"{TEAM}/runs",
            '{"schema_version": 2, "name": "pilot", "data": {"dataset": "ds_…',
            "Submitted run pilot",
        ),
        (
            "submit_run",
            f"{TEAM}/runs",
            '{"created": "run_a", "schema_version": 2, "name": "pilot", "data": {"dat…',
            "Submitted run pilot",
        ),
        (
            "create_webhook",
            f"{TEAM}/webhooks",
            '{"created": "hook_a", "url": "https://example.org/..."}',
            "Created webhook https://example.org/...",
        ),
        ("submit_run", f"{TEAM}/runs", '{"created": "run_a", "model": {"wid…', "Submitted run run_a"),
        (
            "clone_run",
            f"{TEAM}/runs/run_a/clone",
            '{"created": "run_b", "spec": {"…',
            "Cloned run run_a as run_b",
        ),
        ("remove_member", f"{TEAM}/members/user_c", '?runs=cancel {"name": "Bob"}', "Removed member Bob"),
        (
            "create_service_key",
            f"{TEAM}/service-accounts/user_c/keys",
            '{"name": "ci"}',
            "Created key ci of service account user_c",
        ),
        ("sign_in", "/api/v1/auth/sign-in", '{"email": "bob@example.org"}', "Signed in as bob@example.org"),
        ("edit_run", f"{TEAM}/runs/run_a", '{"name": "pilot"}', "Edited run pilot"),
        ("edit_run", f"{TEAM}/runs/run_a", '{"name": null, "notes": "x"}', "Edited run run_a"),
        ("edit_run", f"{TEAM}/runs/run_a", '["name"]', "Edited run run_a"),
        ("clone_run", f"{TEAM}/runs/run_a/clone", '{"name": "pilot-2"}', "Cloned run run_a as pilot-2"),
        (
            "edit_checkpoint",
            f"{TEAM}/runs/run_a/checkpoints/ckpt_b",
            '{"pinned": false}',
            "Unpinned checkpoint ckpt_b of run run_a",
        ),
        (
            "act_on_runs",
            f"{TEAM}/runs/bulk",
            '{"action": "tag", "runs": ["run_a", "run_b"]}',
            "Asked to tag 2 runs",
        ),
        (
            "act_on_runs",
            f"{TEAM}/runs/bulk",
            '{"action": "delete", "runs": ["run_a"]}',
            "Asked to delete run run_a",
        ),
        (
            "act_on_runs",
            f"{TEAM}/runs/bulk",
            '{"action": "cancel", "runs": ["run_…',
            "Asked to cancel several runs",
        ),
        (
            "delete_dataset_version",
            f"{TEAM}/datasets/ds_b/versions/2",
            "",
            "Deleted version 2 of dataset ds_b",
        ),
        (
            "create_invitation",
            f"{TEAM}/invitations",
            '{"email": "bob@example.org"}',
            "Invited bob@example.org",
        ),
        ("rename_team", TEAM, '{"name": "The lab"}', "Renamed team lab to The lab"),
        ("delete_team", TEAM, "", "Deleted team lab"),
        ("decide_device_login", "/api/v1/me/device", '{"approve": false}', "Denied a device sign-in"),
        ("unlink_identity", "/api/v1/me/identities/ident_d", "", "Unlinked identity ident_d"),
        ("leave_team", f"{TEAM}/members/me", "", "Left team"),
    ],
)
def test_an_entry_is_a_sentence(action: str, path: str, details: str, expected: str) -> None:
    assert text_of(action, path, details) == expected


@pytest.mark.parametrize(
    ("action", "path", "details", "expected"),
    [
        (
            "delete_checkpoint",
            f"{TEAM}/runs/run_a/checkpoints/ckpt_b",
            "",
            "Deleted checkpoint step 40 of run pilot",
        ),
        ("clone_run", f"{TEAM}/runs/run_a/clone", '{"name": "pilot-2"}', "Cloned run pilot as pilot-2"),
        (
            "act_on_runs",
            f"{TEAM}/runs/bulk",
            '{"action": "pause", "runs": ["run_a", "run_c"]}',
            "Asked to pause 2 runs: pilot, run_c",
        ),
    ],
)
def test_a_sentence_has_the_names_that_are_known(action: str, path: str, details: str, expected: str) -> None:
    assert text_of(action, path, details, {"run_a": "pilot", "ckpt_b": "step 40"}) == expected


def test_names_that_deletions_recorded_are_known() -> None:
    bulk = f"{TEAM}/runs/bulk"
    entries = [
        entry(
            "act_on_runs", bulk, '{"names": ["gone", "left"], "action": "delete", "runs": ["run_c", "run_d"]}'
        ),
        entry("act_on_runs", bulk, '{"names": ["one"], "action": "delete", "runs": ["run_e", "run_f"]}'),
        entry("delete_dataset", f"{TEAM}/datasets/ds_g", '{"name": "corpus"}'),
        entry("delete_service_account", f"{TEAM}/service-accounts/user_h", '{"name": "nightly"}'),
        entry("edit_run", f"{TEAM}/runs/run_a", '{"name": "before"}'),
    ]
    assert recorded_names(entries) == {
        "run_c": "gone",
        "run_d": "left",
        "ds_g": "corpus",
        "user_h": "nightly",
    }


@pytest.mark.parametrize(
    ("action", "path", "details", "objects"),
    [
        (
            "delete_checkpoint",
            f"{TEAM}/runs/run_a/checkpoints/ckpt_b",
            "",
            {"ckpt_b": ("checkpoint", "ckpt_b"), "run_a": ("run", "run_a")},
        ),
        (
            "create_dataset",
            f"{TEAM}/datasets",
            '{"created": "ds_b", "name": "tales"}',
            {"tales": ("dataset", "ds_b")},
        ),
        (
            "clone_run",
            f"{TEAM}/runs/run_a/clone",
            '{"created": "run_b", "name": "pilot-2"}',
            {"run_a": ("run", "run_a"), "pilot-2": ("run", "run_b")},
        ),
        (
            "act_on_runs",
            f"{TEAM}/runs/bulk",
            '{"action": "pause", "runs": ["run_a"]}',
            {"run_a": ("run", "run_a")},
        ),
        (
            "create_key",
            f"{TEAM}/service-accounts/user_c/keys",
            "",
            {"user_c": ("service account", "user_c")},
        ),
        ("rename_team", TEAM, "", {"lab": ("team", "lab")}),
        ("reorder", "/api/v1/teams/my_team/queue/order", "", {}),
    ],
)
def test_parts_have_the_objects_that_they_name(
    action: str, path: str, details: str, objects: dict[str, tuple[str, str]]
) -> None:
    parts = sentence_of(entry(action, path, details), {})
    found = {part.text: part.object for part in parts if part.object is not None}
    assert found == {text: AuditObject(kind=kind, id=id) for text, (kind, id) in objects.items()}


PAST_TENSES = """
    Added Asked Cancelled Changed Checked Claimed Cleaned Cloned Committed Confirmed Counted Created Deleted Edited Ended
    Estimated Failed Finished Forked Invited Joined Left Marked Moved Overrode Paused Planned Prepared Previewed Put Released
    Removed Renamed Renewed Reordered Reported Requested Responded Resumed Revoked Saved Sent Signed Started Stored
    Submitted Tested Unlinked Used Validated
"""


def test_every_change_of_the_api_has_a_label_in_the_past_tense(repository: Path) -> None:
    document = json.loads((repository / "frontend" / "openapi.json").read_text())
    operations = [
        operation["operationId"]
        for methods in document["paths"].values()
        for method, operation in methods.items()
        if method in ("post", "put", "patch", "delete")
    ]
    assert len(operations) > 60
    labels = [label_of(operation, "") for operation in [*operations, "failed_sign_in"]]
    assert [label for label in labels if label.split()[0] not in PAST_TENSES.split() or "_" in label] == []
