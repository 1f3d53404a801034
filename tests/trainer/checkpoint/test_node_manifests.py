"""Manifests of any size reach the other nodes, and leave nothing in the store."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch.distributed as dist

from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest, FileEntry
from trainwright_trainer.checkpoint.node_manifests import NodeManifests
from trainwright_trainer.checkpoint.rank_files import RankManifest

FILES = 120_000
"""Their digests are random, so even the compressed manifest is above torch's limit of 8 MiB per value."""


@pytest.mark.slow(target="layouts")
def test_large_manifests_are_exchanged_step_after_step() -> None:
    store: Any = dist.TCPStore("127.0.0.1", 0, is_master=True)
    before = store.num_keys()
    nodes = [NodeManifests(store.clone(), node, 2, "checkpoint/nonce") for node in range(2)]
    written = [manifest_of(node) for node in range(2)]
    for step in (10, 20):
        with ThreadPoolExecutor(2) as pool:
            contents = list(
                pool.map(
                    lambda node, step=step: nodes[node].exchange(step, written[node], partial(build, step)),
                    range(2),
                )
            )
        assert contents[0] == contents[1]
        merged = CheckpointManifest.model_validate_json(contents[0])
        assert merged.step == step
        assert merged.files == [*written[0].files, *written[1].files]
    parts = store.num_keys() - before - 1
    assert parts * 4 * 2**20 > 8 * 2**20, "only the last manifest is left, in more than two parts"


def manifest_of(node: int) -> RankManifest:
    files = [
        FileEntry(name=f"tensors-{node}-{number}", bytes=1, digest=secrets.token_hex(32))
        for number in range(FILES)
    ]
    return RankManifest(files=files, tensors={})


def build(step: int, written: RankManifest) -> CheckpointManifest:
    return CheckpointManifest(
        kind=CheckpointKind.STATE, step=step, files=written.files, config_digest="0" * 64, code_version="test"
    )
