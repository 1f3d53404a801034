"""Exchanging between nodes what each has written to a checkpoint.

The threads that write checkpoints must not use collectives, which the training threads use at the same time. So the
first ranks of the nodes send each other manifests through the key-value store of the process group, with a separate
connection.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Protocol

import torch.distributed as dist

from trainwright.contracts.checkpoint import CheckpointManifest
from trainwright_trainer.checkpoint.rank_files import RankManifest, merge_manifests
from trainwright_trainer.distributed.axis import detect_lost_ranks
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.process_group import COLLECTIVE_TIMEOUT

PART_CHARACTERS = 4 * 2**20


class KeyValueStore(Protocol):
    """The methods of torch's stores that the exchange uses. ``get`` waits for the key."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def delete_key(self, key: str, /) -> bool: ...


class NodeManifests:
    """The exchange as seen by the first rank of one node.

    Args:
        store: a connection that no other thread uses.
        node: this node's number.
        nodes: how many there are.
        prefix: of all keys of this attempt.
    """

    def __init__(self, store: KeyValueStore, node: int, nodes: int, prefix: str) -> None:
        self._store = store
        self._node = node
        self._nodes = nodes
        self._prefix = prefix
        self._published: str | None = None
        """Key of the last checkpoint's manifest, on node 0."""

    def exchange(
        self, step: int, mine: RankManifest, build: Callable[[RankManifest], CheckpointManifest]
    ) -> bytes:
        """The content of the checkpoint's manifest, which node 0 builds of what the ranks of all nodes have written, in their order.

        Blocks until the first ranks of all nodes have called it for ``step``. A node calls it for one step after
        another, so when all manifests of a step have come, all nodes have read the checkpoint's manifest of the step
        before, and node 0 deletes it.
        """
        key = f"{self._prefix}/{step}"
        if self._node:
            self._send(f"{key}/{self._node}", mine.model_dump_json().encode())
            return self._receive(f"{key}/all")
        others = [f"{key}/{node}" for node in range(1, self._nodes)]
        written = (RankManifest.model_validate_json(self._receive(other)) for other in others)
        content = build(merge_manifests([mine, *written])).to_bytes()
        self._send(f"{key}/all", content)
        for old in (*others, *([self._published] if self._published else [])):
            self._delete(old)
        self._published = f"{key}/all"
        return content

    def _send(self, key: str, content: bytes) -> None:
        """Store ``content`` in parts, since torch's store refuses values of more than 8 MiB; their number comes last."""
        packed = b64encode(zlib.compress(content)).decode()
        parts = [packed[start : start + PART_CHARACTERS] for start in range(0, len(packed), PART_CHARACTERS)]
        for number, part in enumerate(parts):
            self._store.set(f"{key}/{number}", part)
        self._store.set(key, str(len(parts)))

    def _receive(self, key: str) -> bytes:
        """Wait for what another node sends under ``key``."""
        with detect_lost_ranks():
            count = int(self._store.get(key))
            packed = b"".join(self._store.get(f"{key}/{number}") for number in range(count))
        return zlib.decompress(b64decode(packed))

    def _delete(self, key: str) -> None:
        for number in range(int(self._store.get(key))):
            self._store.delete_key(f"{key}/{number}")
        self._store.delete_key(key)


def node_manifests(mesh: Mesh, prefix: str) -> NodeManifests | None:
    """The exchange of this rank; None if all ranks are on one node, or this is not the first rank of its own."""
    if len(mesh.on_node) == mesh.ranks or not mesh.leads_node:
        return None
    assert dist.group.WORLD is not None, "several ranks have a process group"
    shared: Any = dist.group.WORLD.get_group_store()  # torch's type stubs lack clone
    store = shared.clone()
    store.set_timeout(COLLECTIVE_TIMEOUT)
    ranks = len(mesh.on_node)
    return NodeManifests(store, mesh.on_node.start // ranks, mesh.ranks // ranks, f"checkpoint/{prefix}")
