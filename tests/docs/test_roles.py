"""The table of roles in the how-to page on teams agrees with the rules of the routes."""

from collections.abc import Iterable
from pathlib import Path

from tests.backend.access.rules import EXPECTED, T

PAGE = "docs/how-to/team.md"
COLUMNS = ("viewer", "editor", "owner", "site admin")
C = f"{T}/runs/{{run}}/checkpoints/{{checkpoint}}"
ROUTES: dict[str, Iterable[str]] = {
    "see runs": [f"GET {T}/{name}" for name in ("runs", "metrics", "datasets", "members", "limits", "usage")],
    "download checkpoints": [
        f"GET {C}/archive",
        *(f"POST {T}/runs/{name}" for name in ("validate", "plan", "estimate")),
    ],
    "save own views": [f"POST {T}/views", f"DELETE {T}/members/me"],
    "upload, curate and delete": [
        f"POST {T}/uploads",
        f"POST {T}/datasets/{{dataset}}/versions",
        f"DELETE {T}/datasets/{{dataset}}",
        f"POST {T}/tokenizers",
        f"DELETE {T}/tokenizers/{{tokenizer}}",
    ],
    "submit, clone": [
        f"POST {T}/runs",
        f"PATCH {T}/runs/{{run}}",
        f"DELETE {T}/runs/{{run}}",
        *(f"POST {T}/runs/{{run}}/{name}" for name in ("clone", "fork", "pause", "resume", "move", "cancel")),
    ],
    "pin and delete checkpoints": [
        f"PATCH {C}",
        f"DELETE {C}",
        f"POST {T}/recipes",
        f"DELETE {T}/recipes/{{recipe}}",
    ],
    "reorder waiting runs": [f"PUT {T}/queue/order"],
    "invite, change": [
        f"POST {T}/invitations",
        f"PATCH {T}/members/{{member}}",
        f"DELETE {T}/members/{{member}}",
        f"POST {T}/service-accounts",
        f"POST {T}/service-accounts/{{account}}/keys",
    ],
    "set limits of members": [f"PUT {T}/limits/members/{{member}}"],
    "manage webhooks": [f"POST {T}/webhooks", f"DELETE {T}/webhooks/{{webhook}}", f"GET {T}/audit"],
    "rename and delete": [f"PATCH {T}", f"DELETE {T}"],
    "create teams": [
        "POST /api/v1/teams",
        f"PUT {T}/quota/{{device}}",
        f"PUT {T}/storage",
        f"PUT {T}/limits",
    ],
    "manage nodes": ["GET /api/v1/nodes", "PATCH /api/v1/nodes/{node}", "GET /api/v1/audit"],
}
"""Routes of each action, by the first words of its row."""

DECIDED_BY_LIMITS = "assign the priority high"
"""A limit of the team decides this, not a rule of a route."""


def rows_of(page: str) -> dict[str, list[bool]]:
    """For each action of the table, which roles may do it."""
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| action")]
    rows = [line.strip("| ").split(" | ") for line in lines]
    return {action: [cell != "–" for cell in cells] for action, *cells in rows}


def allowed(rule: str) -> list[bool]:
    """Which roles a rule admits; the site admin needs a membership for the routes of a team."""
    if rule == "site admin":
        return [False, False, False, True]
    return [COLUMNS.index(role) >= COLUMNS.index(rule) for role in COLUMNS[:3]] + [False]


def test_the_table_of_roles_says_what_the_rules_say(repository: Path) -> None:
    rows = rows_of((repository / PAGE).read_text())
    assert len(rows) == len(ROUTES) + 1
    for action, cells in rows.items():
        if action.startswith(DECIDED_BY_LIMITS):
            continue
        [routes] = [routes for start, routes in ROUTES.items() if action.startswith(start)]
        for route in routes:
            assert cells == allowed(EXPECTED[route]), f"{action}: {route} is for {EXPECTED[route]}"
