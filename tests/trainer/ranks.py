"""Ranks on this machine: one function run in several processes that communicate over gloo.

The processes are forked from a server that has imported torch once, so that eight of them start in a second.
What a rank returns is passed back to the test; what it raises fails the test with its traceback.
"""

import tempfile
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.fork_server import FORKED
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.mesh import make_mesh
from trainwright_trainer.distributed.process_group import CPU_BACKEND

_SECONDS = 280


def on_ranks(ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call ``function(mesh, *arguments)`` on each of ``ranks`` data ranks.
    Returns their results in rank order."""
    return on_mesh(Degrees(replicas=ranks), function, *arguments)


def on_mesh(
    degrees: Degrees, function: Callable[..., Any], *arguments: Any, patience_seconds: int = _SECONDS
) -> list[Any]:
    """Call ``function(mesh, *arguments)`` on each rank of a mesh. Returns their results in rank order."""
    with tempfile.TemporaryDirectory() as folder:
        pipes = [FORKED.Pipe(duplex=False) for _ in range(degrees.ranks)]
        processes = [
            FORKED.Process(target=_rank, args=(rank, degrees, folder, ours[1], function, arguments))
            for rank, ours in enumerate(pipes)
        ]
        for process in processes:
            process.start()
        try:
            results = [_receive(receiver, patience_seconds) for receiver, _ in pipes]
        finally:
            for process in processes:
                process.kill()
                process.join()
    failed = [response for done, response in results if not done]
    assert not failed, "\n".join(failed)
    return [response for _, response in results]


def _receive(receiver: Connection, seconds: int) -> tuple[bool, Any]:
    if not receiver.poll(seconds):
        return False, f"a rank sent no result for {seconds} seconds"
    heard: tuple[bool, Any] = receiver.recv()
    return heard


def _rank(
    rank: int, degrees: Degrees, folder: str, sender: Connection, function: Callable[..., Any], arguments: Any
) -> None:
    torch.set_num_threads(1)
    try:
        if degrees.ranks > 1:
            store = f"file://{Path(folder) / 'store'}"
            dist.init_process_group(CPU_BACKEND, init_method=store, rank=rank, world_size=degrees.ranks)
        mesh = make_mesh(rank, degrees, torch.device("cpu"))
        mesh.create_groups(beside_passes=True)
        sender.send((True, function(mesh, *arguments)))
    except Exception:
        sender.send((False, f"rank {rank}:\n{traceback.format_exc()}"))
    # A tensor stays in this process's memory until it was received. The test ends the ranks after it has all
    # results.
    threading.Event().wait()
