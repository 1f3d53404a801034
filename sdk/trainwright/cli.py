"""The command line: a thin layer over the client, with a command for every action of the web pages.

``trainwright login`` stores a server and a key; ``TRAINWRIGHT_SERVER`` and ``TRAINWRIGHT_KEY`` name others, and
``TRAINWRIGHT_TEAM`` the team, which people in several teams need. Specs are JSON or YAML files; ``--set section.key=value`` changes
one value, and ``--set section.key=`` makes it null.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from trainwright.commands import (
    account,
    audit,
    checkpoints,
    datasets,
    invitations,
    keys,
    limits,
    login,
    members,
    nodes,
    notices,
    plan,
    presets,
    queue,
    recipes,
    runs,
    service_accounts,
    sessions,
    teams,
    tokenizers,
    usage,
    webhooks,
)
from trainwright.commands.program import EXIT_CODES, Program
from trainwright.contracts.run_spec import RunSpec
from trainwright.reference import run_spec
from trainwright.version import Version

app = typer.Typer(no_args_is_help=True, cls=Program, epilog=EXIT_CODES)
app.add_typer(datasets.app, name="datasets")
app.add_typer(tokenizers.app, name="tokenizers")
app.add_typer(runs.app, name="runs")
app.add_typer(queue.app, name="queue")
app.add_typer(checkpoints.app, name="checkpoints")
app.add_typer(nodes.app, name="nodes")
app.add_typer(recipes.app, name="recipes")
app.add_typer(teams.app, name="teams")
app.add_typer(members.app, name="members")
app.add_typer(invitations.app, name="invitations")
app.add_typer(service_accounts.app, name="service-accounts")
app.add_typer(limits.app, name="limits")
app.add_typer(audit.app, name="audit")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(notices.app, name="notices")
app.add_typer(account.app, name="account")
app.add_typer(keys.app, name="keys")
app.add_typer(sessions.app, name="sessions")
app.command("login")(login.login)
app.command("logout")(login.logout)
app.command("plan")(plan.plan)
app.command("estimate")(plan.estimate)
app.command("what-if")(plan.what_if)
app.command("layout", hidden=True)(plan.layout)  # the earlier name of `runs layout`
app.command("usage")(usage.usage)
app.command("presets")(presets.presets)


@app.callback()
def main(version: Version = False) -> None:
    """Train language models on a Trainwright server."""


@app.command()
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the reference page instead.")] = False,
) -> None:
    """Print the JSON Schema of a run's spec."""
    typer.echo(
        run_spec.markdown() if markdown else json.dumps(RunSpec.model_json_schema(), indent=2), nl=False
    )


if __name__ == "__main__":
    app()
