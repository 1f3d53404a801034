"""What a run requires of a node: slots, its engine, memory for its ranks, host memory for DeepSpeed's offload, and, of
several nodes, an address for the others."""

import json
from functools import lru_cache

from trainwright.contracts.agent_protocol import Inventory
from trainwright.contracts.parallelism_spec import Device, EngineKind, OffloadKind
from trainwright.contracts.precision_spec import PrecisionKind, PrecisionSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.memory import host_bytes_per_node
from trainwright.planner.plan import fullest_rank_bytes
from trainwright_backend.nodes.service import rank_bytes
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.joined_nodes import has_precision
from trainwright_backend.runs.tables import Run


def engine_of(run: Run) -> str:
    """The engine of the run's next attempt."""
    engine: str = run.spec.get("parallelism", {}).get("engine", EngineKind.NATIVE)
    return engine


def slots_per_node(run: Run) -> int:
    """Slots that the run occupies on each of its nodes."""
    return run.slots // run.nodes


def meets_requirements(node: Node, run: Run) -> bool:
    """Whether the node's software and memory can run the run, or its part of it."""
    return has_software(node, run) and has_memory(node, run)


def has_software(node: Node, run: Run) -> bool:
    """Whether the node's software and kind of GPU can run the run, or its part of it."""
    can_reach_others = run.nodes == 1 or node.inventory.get("peer_address") is not None
    return can_reach_others and has_engine(node, run) and has_gpus_for(node, run)


def has_engine(node: Node, run: Run) -> bool:
    """Whether the node has the run's engine, as far as its agent reported."""
    return engine_of(run) != EngineKind.DEEPSPEED or node.inventory.get("deepspeed") is not False


def has_gpus_for(node: Node, run: Run) -> bool:
    """Whether the node's GPUs have the products of the run's precision, as far as its agent reported."""
    precision = run.spec.get("precision", {})
    if run.device != Device.CUDA or precision.get("kind") != PrecisionKind.FP8:
        return True
    return has_precision(Inventory.model_validate(node.inventory).gpus, precision_of(run))


def precision_of(run: Run) -> PrecisionSpec:
    return PrecisionSpec.model_validate(run.spec["precision"])


def has_memory(node: Node, run: Run) -> bool:
    """Whether the node could give each rank the memory that the run's plan states, if nothing else ran there."""
    available = memory_for(node, run)
    return available is None or available >= memory_of(run)


def memory_for(node: Node, run: Run) -> int | None:
    """The most memory that the node could give each rank of the run; None if it has no slot of the run's device."""
    return rank_bytes(node, run.device, slots_per_node(run))


def memory_of(run: Run) -> int:
    """The memory that the fullest rank of the run's next attempt needs, by formulas."""
    return _fullest_rank_bytes(json.dumps(run.spec), run.device)


def host_bytes_of(run: Run) -> int:
    """Host memory that the run's ranks would use on their node, by formulas."""
    if run.spec.get("parallelism", {}).get("offload", OffloadKind.NONE) == OffloadKind.NONE:
        return 0
    return host_bytes_per_node(RunSpec.model_validate(run.spec))


@lru_cache(maxsize=1024)
def _fullest_rank_bytes(spec: str, device: str) -> int:
    """For a spec as JSON. Every round asks this again for each waiting run."""
    return fullest_rank_bytes(RunSpec.model_validate_json(spec), cuda=device == Device.CUDA)
