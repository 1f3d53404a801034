"""What a run requires of each of its nodes: slots, its engine, its precision's products, memory for its ranks, host memory
for DeepSpeed's offload, and, of several nodes, an address for the others."""

import json
from dataclasses import dataclass
from functools import lru_cache

from pydantic import ValidationError

from trainwright.contracts.parallelism_spec import Device, EngineKind
from trainwright.contracts.precision_spec import PrecisionKind, PrecisionSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.memory import host_bytes_per_node
from trainwright.planner.plan import fullest_rank_bytes
from trainwright_backend.runs.tables import Run


@dataclass(frozen=True, eq=False)
class Needs:
    """What runs that suit the same nodes have in common: one object for all of them (`needs_of`), so that it is quickly
    compared."""

    device: str
    nodes: int
    slots: int
    """On each node."""

    engine: str
    precision: PrecisionSpec | None
    """If not all devices have its products."""

    rank_bytes: int
    """Memory of the fullest rank of the next attempt, by formulas."""

    host_bytes: int
    """Host memory that offload uses on each node, by formulas."""


def needs_of(run: Run) -> Needs:
    """The needs of the run's next attempt."""
    return _needs(json.dumps(run.spec), run.device, run.nodes, run.slots // run.nodes)


@lru_cache(maxsize=1024)
def _needs(spec: str, device: str, nodes: int, slots: int) -> Needs:
    """For a spec as JSON. Every round asks this again for each waiting run.

    Of a spec that this version cannot read, only the slots are known, and nothing else is refused for it: one such run must
    not keep all others from being placed.
    """
    try:
        parsed = RunSpec.model_validate_json(spec)
    except ValidationError:
        return _shared(device, nodes, slots, EngineKind.NATIVE, None, 0, 0)
    needs_gpus = device == Device.CUDA and parsed.precision.kind is PrecisionKind.FP8
    return _shared(
        device,
        nodes,
        slots,
        parsed.parallelism.engine,
        parsed.precision if needs_gpus else None,
        fullest_rank_bytes(parsed, cuda=device == Device.CUDA),
        host_bytes_per_node(parsed),
    )


_shared = lru_cache(maxsize=1024)(Needs)
