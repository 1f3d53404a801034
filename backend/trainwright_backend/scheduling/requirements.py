"""What a run requires of each of its nodes: slots, its engine, support for its precision, memory for its ranks, and host
memory for DeepSpeed's offload. In a run on several nodes, each also needs an address for the others."""

from dataclasses import dataclass
from functools import lru_cache

from trainwright.contracts.parallelism_spec import Device, EngineKind
from trainwright.contracts.precision_spec import PrecisionKind, PrecisionSpec
from trainwright.planner.plan import MemoryNeeds, memory_needs
from trainwright_backend.runs.gpu_choice import GpuChoice, gpu_choice
from trainwright_backend.runs.joined_nodes import needs_equal_gpus
from trainwright_backend.runs.stored_spec import parse_spec, spec_json
from trainwright_backend.runs.tables import Run


@dataclass(frozen=True, eq=False)
class Needs:
    """The needs of a run. Runs with the same needs share one object (`needs_of`), so comparing needs is cheap."""

    device: str
    nodes: int
    slots: int
    """Slots on each node."""

    engine: str
    precision: PrecisionSpec | None
    """Set only if not all devices support it."""

    gpus: GpuChoice
    """What its spec asks of the GPUs."""

    memory: MemoryNeeds
    """The planner's estimate for the next attempt."""

    alike: bool
    """Whether all its nodes must have the same GPUs."""


def needs_of(run: Run, nodes: int | None = None) -> Needs:
    """The needs of the run's next attempt, on ``nodes`` nodes (None: on as many as the run has)."""
    return _needs(spec_json(run), run.device, nodes or run.nodes, run.slots // run.nodes)


@lru_cache(maxsize=1024)
def _needs(spec: bytes, device: str, nodes: int, slots: int) -> Needs:
    """The needs of a spec in JSON, which do not depend on its name and seed.

    If this version cannot read the spec, only the slots count. One such run must not keep the others from being placed.
    """
    parsed = parse_spec(spec)
    if parsed is None:
        return _shared(device, nodes, slots, EngineKind.NATIVE, None, GpuChoice(), MemoryNeeds(0, 0), False)
    parsed = parsed.on_nodes(nodes)
    needs_gpus = device == Device.CUDA and parsed.precision.kind is PrecisionKind.FP8
    return _shared(
        device,
        nodes,
        slots,
        parsed.parallelism.engine,
        parsed.precision if needs_gpus else None,
        gpu_choice(parsed),
        memory_needs(parsed, cuda=device == Device.CUDA),
        needs_equal_gpus(parsed),
    )


_shared = lru_cache(maxsize=1024)(Needs)
