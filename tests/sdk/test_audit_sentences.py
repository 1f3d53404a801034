"""Entries of the audit log as sentences: the same as on the page (frontend/tests/features/teams/audit/auditText.test.ts)."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainwright.commands.audit_sentences import label_of, names_in, sentence
from trainwright.contracts.api.audit import AuditEntry

TEAM = "/api/v1/teams/lab"


def entry(action: str, path: str, details: str = "", names: dict[str, str] | None = None) -> AuditEntry:
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
        names=names or {},
        request_id="",
        hash="",
    )


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
        ("submit_run", f"{TEAM}/runs", '?priority=high {"name": "pilot"}', "Submitted run pilot"),
        (
            "submit_run",
            f"{TEAM}/runs",
            '{"schema_version": 2, "name": "pilot", "data": {"dataset": "ds_…',
            "Submitted run pilot",
        ),
        ("edit_run", f"{TEAM}/runs/run_a", '{"name": null, "notes": "x"}', "Edited run run_a"),
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
    assert sentence(entry(action, path, details), {}) == expected


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
    assert sentence(entry(action, path, details), {"run_a": "pilot", "ckpt_b": "step 40"}) == expected


def test_names_are_the_current_ones_and_those_that_deletions_recorded() -> None:
    bulk = f"{TEAM}/runs/bulk"
    entries = [
        entry(
            "act_on_runs", bulk, '{"names": ["gone", "left"], "action": "delete", "runs": ["run_c", "run_d"]}'
        ),
        entry("act_on_runs", bulk, '{"names": ["one"], "action": "delete", "runs": ["run_e", "run_f"]}'),
        entry("delete_dataset", f"{TEAM}/datasets/ds_g", '{"name": "corpus"}'),
        entry("edit_run", f"{TEAM}/runs/run_a", '{"name": "before"}', {"run_a": "after"}),
    ]
    assert names_in(entries) == {"run_c": "gone", "run_d": "left", "ds_g": "corpus", "run_a": "after"}


PAST_TENSES = """
    Added Asked Cancelled Changed Checked Claimed Cleaned Cloned Committed Confirmed Counted Created Deleted Edited Ended
    Estimated Failed Finished Forked Invited Joined Left Marked Moved Overrode Paused Planned Prepared Previewed Put Released
    Removed Renamed Renewed Reordered Reported Requested Responded Resumed Revoked Saved Sent Signed Started Stored
    Submitted Tested Unlinked Used Validated
"""


def test_every_change_of_the_api_is_told_in_the_past_tense(repository: Path) -> None:
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
