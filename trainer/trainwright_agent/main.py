"""The command line of a node's agent: ``trainwright-agent join | run | stop``.

``join`` registers the machine with a one-time token, ``run`` works until it is stopped, ``stop`` stops it. Runs
continue without the agent: each has its own supervisor, and the next agent takes over.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from trainwright.contracts.agent_protocol import Join, Timers
from trainwright.version import Version
from trainwright_agent import processes
from trainwright_agent.client import ApiError, Client
from trainwright_agent.daemon.agent import Agent
from trainwright_agent.daemon.attempts import stop_attempts
from trainwright_agent.daemon.inventory import collect_inventory
from trainwright_agent.identity import (
    Identity,
    Settings,
    load_identity,
    load_settings,
    save_identity,
    save_settings,
)
from trainwright_agent.workspace import AlreadyRunningError, Workspace

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)

Data = Annotated[Path, typer.Option(help="The agent's data folder; created if it is missing.")]
CpuSlots = Annotated[
    int | None, typer.Option(min=0, help="Ranks that may run on the CPU at once. Default: 2.")
]
PeerAddress = Annotated[
    str | None,
    typer.Option(
        help="Address at which other nodes reach this one, for runs on several nodes."
        " Default: that of its route to the server."
    ),
]
Location = Annotated[
    str | None,
    typer.Option(
        help="Its rack or switch, such as rack-3. A run's nodes are chosen from as few as possible."
    ),
]
TrainerModule = Annotated[
    str | None, typer.Option(hidden=True, help="Package to start instead of the trainer.")
]

_STOP_SECONDS = 60.0


@app.callback()
def check_system(version: Version = False) -> None:
    """Run training on this machine for a Trainwright server."""
    if sys.platform != "linux":
        raise _fail("Agents need Linux: use WSL2 or a Linux VM. The SDK and the CLI work here.")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


@app.command()
def join(
    api: Annotated[str, typer.Option(help="Address of the server, such as https://train.example.org.")],
    name: Annotated[str, typer.Option(help="Name of this node, as given when the token was created.")],
    token: Annotated[str, typer.Option(help="One-time join token.")],
    data: Data,
    cpu_slots: CpuSlots = None,
    peer_address: PeerAddress = None,
    location: Location = None,
    trainer_module: TrainerModule = None,
) -> None:
    """Register this machine with the server."""
    workspace = _open_workspace(data)
    if load_identity(workspace.data) is not None:
        raise _fail(f"{data} has already joined. Use another folder, or `run`.")
    settings = _settings(
        workspace,
        cpu_slots=cpu_slots,
        peer_address=peer_address,
        location=location,
        trainer_module=trainer_module,
    )
    _join(workspace, api, name, token, settings)


@app.command()
def run(
    data: Data,
    api: Annotated[
        str | None, typer.Option(help="Address of the server: to join, or when it has changed.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name to join as.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with a one-time token, to join first.")
    ] = None,
    cpu_slots: CpuSlots = None,
    cache_gib: Annotated[int | None, typer.Option(min=1, help="Limit of the shard cache, in GiB.")] = None,
    object_store: Annotated[
        Path | None, typer.Option(help="The server's object folder, if it is on this disk.")
    ] = None,
    peer_address: PeerAddress = None,
    location: Location = None,
    trainer_module: TrainerModule = None,
) -> None:
    """Run the agent until it is stopped."""
    workspace = _open_workspace(data)
    settings = _settings(
        workspace,
        cpu_slots=cpu_slots,
        cache_limit_bytes=None if cache_gib is None else cache_gib * 2**30,
        object_store=None if object_store is None else object_store.resolve(),
        peer_address=peer_address,
        location=location,
        trainer_module=trainer_module,
    )
    try:
        with workspace.lock():
            _ensure_joined(workspace, api, name, token_file, settings)
            Agent(workspace.data, settings).run()
    except AlreadyRunningError:
        raise _fail(f"Another agent uses {data}. Stop it, or give this one its own folder.") from None


@app.command()
def stop(
    data: Annotated[Path, typer.Option(help="The agent's data folder.")],
    with_runs: Annotated[bool, typer.Option(help="Stop the runs on this node too.")] = False,
) -> None:
    """Stop the agent that uses the folder."""
    workspace = Workspace(data.resolve())
    if not workspace.runs.is_dir():
        raise _fail(f"{data} is not an agent's data folder.")
    pid = workspace.agent_pid()
    if pid is not None:
        processes.send_signal(pid, signal.SIGTERM, lambda: workspace.agent_pid() == pid)
    until = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < until:
        # Attempts come second: an agent that still runs may start another supervisor.
        if workspace.agent_pid() is None and not (with_runs and stop_attempts(workspace)):
            return
        time.sleep(0.1)
    raise _fail(f"Processes of {data} are still running after {_STOP_SECONDS:.0f} s.")


def _open_workspace(data: Path) -> Workspace:
    workspace = Workspace(data.resolve())
    workspace.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    workspace.data.chmod(0o700)
    workspace.runs.mkdir(exist_ok=True, mode=0o700)
    return workspace


def _settings(workspace: Workspace, **given: object) -> Settings:
    """Save the options of the command line; options left out (None) keep their last value."""
    update = {name: value for name, value in given.items() if value is not None}
    settings = load_settings(workspace.data).model_copy(update=update)
    save_settings(workspace.data, settings)
    return settings


def _ensure_joined(
    workspace: Workspace, api: str | None, name: str | None, token_file: Path | None, settings: Settings
) -> None:
    identity = load_identity(workspace.data)
    if identity is None:
        if api is None or name is None or token_file is None:
            raise _fail("This node has not joined yet. Pass --api, --name and --token-file, or use `join`.")
        _join(workspace, api, name, token_file.read_text().strip(), settings)
    elif api is not None and api != identity.api_url:
        save_identity(workspace.data, identity.model_copy(update={"api_url": api}))


def _join(workspace: Workspace, api: str, name: str, token: str, settings: Settings) -> None:
    inventory = collect_inventory(workspace.data, settings, api)
    try:
        joined = Client(api).join(Join(token=token, name=name, inventory=inventory))
    except (ApiError, ValueError) as error:
        raise _fail(f"The server rejected this node: {error}") from error
    timers: Timers = joined.timers
    identity = Identity(
        api_url=api,
        name=name,
        node_id=joined.node_id,
        node_token=joined.node_token,
        hints_url=joined.hints_url,
        timers=timers,
    )
    save_identity(workspace.data, identity)
    typer.echo(f"{name} has joined {api}.")


def _fail(sentence: str) -> typer.Exit:
    typer.echo(sentence, err=True)
    return typer.Exit(1)


if __name__ == "__main__":
    app()
