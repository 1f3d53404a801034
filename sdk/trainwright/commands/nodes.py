"""Commands about nodes, for site admins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from statistics import fmean
from typing import Annotated

import typer

from trainwright.client import Client
from trainwright.commands.run_states import shown_state
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TextTable,
    err,
    format_percent,
    format_slots,
    open_client,
    plural,
    print_error,
    print_json,
    print_table,
    table_of,
)
from trainwright.contracts.api.nodes import Node, NodeLoad
from trainwright.sizes import format_bytes

app = typer.Typer(
    no_args_is_help=True,
    help="List, add, drain and quarantine nodes, show their load, and allow them slots. For site admins.",
)


@app.command("list")
def list_nodes(key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List the nodes, their current use and their runs."""
    with open_client(server, key) as client:
        found = client.nodes()
        if print_json(found, as_json):
            return
        table = table_of("name", "state", "slots free", "use", "runs")
        for node in found:
            table.add_row(node.id, node.name, _condition(node), _free(node), _use(node), _runs(node))
        print_table(table, empty="No nodes.")


def _free(node: Node) -> str:
    """`1 of 8 GPUs, 2 of 2 CPU slots`, without kinds of slots that it does not have."""
    return ", ".join(
        f"{node.slots_free[device]} of {format_slots(count, device)}"
        for device, count in node.slots.items()
        if count
    )


def _use(node: Node) -> str:
    """Current use of the CPU, its memory and each GPU; – if the node does not report it."""
    if node.hardware is None:
        return "–"
    found = node.hardware
    memory = f"{format_bytes(found.memory_bytes)} of {format_bytes(found.memory_total_bytes)}"
    gpus = (
        f"GPU {gpu.index} {format_percent(gpu.utilization)}"
        for gpu in found.gpus
        if gpu.utilization is not None
    )
    return ", ".join((f"CPU {format_percent(found.cpu_utilization)}", memory, *gpus))


@app.command("join-token")
def join_token(name: str, key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Create a one-time token for the node NAME, and print the command that joins with it."""
    with open_client(server, key) as client:
        created = client.create_join_token(name)
        if print_json(created, as_json):
            return
        if created.warning is not None:
            err.print(created.warning, style="yellow", soft_wrap=True)
        typer.echo(
            f"trainwright-agent join --api {created.api or server} --name {created.name} --token {created.token} "
            "--data /var/lib/trainwright-agent"
        )


@app.command("drain")
def drain(
    node: str,
    key: Key,
    server: Server = LOCAL_SERVER,
    move_runs: Annotated[
        bool,
        typer.Option(
            "--move-runs", help="Move its runs to other nodes: each saves, leaves and is queued again."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Drain a node: it gets no new runs, and its current runs continue, or move to other nodes."""
    with open_client(server, key) as client:
        drained = client.set_draining(_node_id(client, node), True, move_runs=move_runs)
        if print_json(drained, as_json):
            return
        leaving = ", moving off" if drained.move_runs and drained.runs else ""
        typer.echo(f"{drained.name} gets no new runs; {_on_it(drained)}{leaving}.")


@app.command("undrain")
def undrain(node: str, key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Undrain a node: it gets new runs again."""
    with open_client(server, key) as client:
        changed = client.set_draining(_node_id(client, node), False)
        if print_json(changed, as_json):
            return
        typer.echo(f"{changed.name} gets new runs again.")


@app.command("quarantine")
def quarantine(node: str, key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Quarantine a node: it gets no runs until it passes a self-test. Its current runs continue."""
    with open_client(server, key) as client:
        found = client.set_quarantined(_node_id(client, node), True)
        if print_json(found, as_json):
            return
        typer.echo(f"{found.name} gets no runs until it passes a self-test; {_on_it(found)}.")


@app.command("release")
def release(node: str, key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Release a node from quarantine without a self-test."""
    with open_client(server, key) as client:
        changed = client.set_quarantined(_node_id(client, node), False)
        if print_json(changed, as_json):
            return
        typer.echo(f"{changed.name} is not in quarantine.")


@app.command("delete")
def delete(node: str, key: Key, server: Server = LOCAL_SERVER) -> None:
    """Remove a node without runs, and revoke its token. Its agent can no longer connect."""
    with open_client(server, key) as client:
        client.delete_node(_node_id(client, node))


@app.command("show")
def show(node: str, key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Show a node: its slots, use and runs, why it is in quarantine, its failures of the last 24 hours, and its newest self-test."""
    with open_client(server, key) as client:
        found_id = _node_id(client, node)
        [found] = [item for item in client.nodes() if item.id == found_id]
    if print_json(found, as_json):
        return
    typer.echo(f"{found.name}: {_condition(found)}")
    typer.echo(f"slots free: {_free(found) or 'none'}")
    typer.echo(f"use: {_use(found)}")
    typer.echo(f"runs: {_runs(found) or 'none'}")
    if found.quarantine is not None:
        typer.echo(f"in quarantine since {_time(found.quarantine.since)}: {found.quarantine.reason}")
    for failure in found.failures:
        typer.echo(f"{_time(failure.time)}  {failure.code}  {failure.message}")
    if found.self_test is not None:
        typer.echo(
            f"self-test {'passed' if found.self_test.passed else 'failed'} {_time(found.self_test.time)}"
        )
        for check in found.self_test.checks:
            typer.echo(f"  {'passed' if check.passed else 'FAILED'}  {check.name}  {check.detail}".rstrip())


@app.command("load")
def load(
    node: str,
    key: Key,
    server: Server = LOCAL_SERVER,
    hours: Annotated[int, typer.Option(min=1, max=24, help="Hours to show.")] = 24,
    as_json: AsJson = False,
) -> None:
    """Show the mean use of a node's CPU, memory, disk and GPUs in each of the last hours."""
    with open_client(server, key) as client:
        found = client.node_load(_node_id(client, node), hours)
        if print_json(found, as_json):
            return
        series = {item.name: item.values for item in found.series if item.name in _LOAD_COLUMNS}
        table = TextTable("from", *(_LOAD_COLUMNS[name][0] for name in series))
        for hour, indices in _intervals_by_hour(found).items():
            cells = (
                _mean_text(name, [values[index] for index in indices]) for name, values in series.items()
            )
            table.add_row(_time(hour), *cells)
        print_table(table, empty=f"Nothing was measured in the last {plural(hours, 'hour')}.")


_LOAD_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "cpu_utilization": ("CPU", format_percent),
    "node_memory_bytes": ("memory", lambda value: format_bytes(round(value))),
    "node_disk_bytes": ("disk", lambda value: format_bytes(round(value))),
    "mean_gpu_utilization": ("GPUs", format_percent),
    "max_gpu_memory_bytes": ("fullest GPU", lambda value: format_bytes(round(value))),
    "total_gpu_power_watts": ("power of all GPUs", lambda value: f"{value:,.0f} W"),
    "max_gpu_temperature_celsius": ("hottest GPU", lambda value: f"{value:,.0f} °C"),
}
"""Title and text of the values of each series that is shown, by name."""


def _intervals_by_hour(found: NodeLoad) -> dict[datetime, list[int]]:
    """The indices of the intervals of each hour in which anything was measured, by its start."""
    hours: dict[datetime, list[int]] = {}
    for index in range(max((len(item.values) for item in found.series), default=0)):
        if any(item.values[index] is not None for item in found.series):
            time = (found.start + timedelta(seconds=found.interval_seconds * index)).astimezone()
            hours.setdefault(time.replace(minute=0, second=0), []).append(index)
    return hours


def _mean_text(name: str, values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _LOAD_COLUMNS[name][1](fmean(known)) if known else "–"


@app.command("allow-slots")
def allow_slots(
    node: str,
    key: Key,
    server: Server = LOCAL_SERVER,
    cuda: Annotated[int | None, typer.Option(help="GPUs that runs may use.")] = None,
    cpu: Annotated[int | None, typer.Option(help="CPU slots that runs may use.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change how many of its slots a node may use. Without options: all slots that it reports now."""
    with open_client(server, key) as client:
        found = _node_id(client, node)
        if cuda is None and cpu is None:
            [shown] = [item for item in client.nodes() if item.id == found]
            cuda, cpu = (shown.reported_slots.get(device) for device in ("cuda", "cpu"))
        changed = client.allow_slots(found, cuda, cpu)
        if print_json(changed, as_json):
            return
        slots = " and ".join(format_slots(count, device) for device, count in changed.slots.items())
        typer.echo(f"{changed.name} has {slots}.")


def _node_id(client: Client, node: str) -> str:
    """Id of a node that is given by id or by name."""
    if node.startswith("node_"):
        return node
    known = {node.name: node.id for node in client.nodes()}
    if node not in known:
        print_error(f"There is no node {node!r}. The nodes are: {', '.join(sorted(known)) or 'none yet'}.")
        raise typer.Exit(1)
    return known[node]


def _condition(node: Node) -> str:
    words = ["online" if node.online else "offline"]
    words += ["drained"] if node.draining else []
    words += ["moving its runs"] if node.move_runs and node.runs else []
    words += ["quarantined"] if node.quarantine is not None else []
    return ", ".join(words)


def _runs(node: Node) -> str:
    return ", ".join(f"{seat.team}/{seat.name} ({shown_state(seat.state)})" for seat in node.runs)


def _on_it(node: Node) -> str:
    count = len(node.runs)
    return f"{count or 'no'} {'run is' if count < 2 else 'runs are'} on it"


def _time(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M}"
