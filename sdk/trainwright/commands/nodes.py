"""Commands about nodes, for site admins."""

from __future__ import annotations

import typer

from trainwright.client import Client
from trainwright.commands.terminal import LOCAL_SERVER, Key, Server, complain, open_client, out, table_of
from trainwright.contracts.api.nodes import Node

app = typer.Typer(no_args_is_help=True, help="Look at nodes and drain them. For site admins.")


@app.command("list")
def list_nodes(key: Key, server: Server = LOCAL_SERVER) -> None:
    """List the nodes, and what runs on them."""
    with open_client(server, key) as client:
        table = table_of("name", "state", "slots free", "runs")
        for node in client.nodes():
            free = (f"{node.slots_free[device]} of {count} {device}" for device, count in node.slots.items())
            table.add_row(node.id, node.name, _condition(node), ", ".join(free), _runs(node))
        out.print(table)


@app.command("drain")
def drain(node: str, key: Key, server: Server = LOCAL_SERVER) -> None:
    """Place nothing new on a node. What runs there goes on to its end."""
    with open_client(server, key) as client:
        drained = client.set_draining(_node_id(client, node), True)
        typer.echo(f"{drained.name} gets no new runs; {len(drained.runs)} are on it.")


@app.command("undrain")
def undrain(node: str, key: Key, server: Server = LOCAL_SERVER) -> None:
    """Let a drained node take runs again."""
    with open_client(server, key) as client:
        typer.echo(f"{client.set_draining(_node_id(client, node), False).name} takes runs again.")


def _node_id(client: Client, node: str) -> str:
    """Of a node by its id, or by its name, which no other node has."""
    if node.startswith("node_"):
        return node
    known = {one.name: one.id for one in client.nodes()}
    if node not in known:
        complain(f"There is no node {node!r}. There is {', '.join(sorted(known)) or 'none yet'}.")
        raise typer.Exit(1)
    return known[node]


def _condition(node: Node) -> str:
    words = "online" if node.online else "offline"
    return f"{words}, drained" if node.draining else words


def _runs(node: Node) -> str:
    return ", ".join(f"{seat.team}/{seat.name} ({seat.state})" for seat in node.runs)
