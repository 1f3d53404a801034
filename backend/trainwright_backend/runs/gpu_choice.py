"""The GPUs that a run asks for: by model, memory and compute capability.

All GPUs of a node must match, because its ranks may get any of them. If an agent does not report a property, its node
counts as matching.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainwright.contracts.agent_protocol import Gpu
from trainwright.contracts.listing import listed
from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import Invalid
from trainwright_backend.runs.joined_nodes import SHOWN_NAMES, nodes_for

_GIB = 2**30


@dataclass(frozen=True)
class GpuChoice:
    """What a run asks of each GPU; all empty if it takes any."""

    model: str | None = None
    memory_gib: float | None = None
    capability: str | None = None

    def __bool__(self) -> bool:
        return (self.model, self.memory_gib, self.capability) != (None, None, None)

    def __str__(self) -> str:
        found = f"{self.model} GPUs" if self.model else "GPUs"
        asked = [
            *([f"{self.memory_gib:g} GiB"] if self.memory_gib is not None else []),
            *([f"compute capability {self.capability}"] if self.capability is not None else []),
        ]
        return f"{found} of at least {' and '.join(asked)}" if asked else found

    def suits(self, gpus: Sequence[Gpu]) -> bool:
        """Whether all of ``gpus`` match."""
        return all(not any(self._lacks(gpu).values()) for gpu in gpus)

    def lacking(self, gpus: Sequence[Gpu]) -> list[str]:
        """The fields of `resources` that one of ``gpus`` does not meet."""
        return [field for field in _SHOWN if any(self._lacks(gpu)[field] for gpu in gpus)]

    def _lacks(self, gpu: Gpu) -> dict[str, bool]:
        return {
            "gpu_model": self.model is not None and self.model.casefold() not in gpu.name.casefold(),
            "gpu_memory_gib": self.memory_gib is not None and gpu.memory_bytes < self.memory_gib * _GIB,
            "gpu_capability": self.capability is not None
            and gpu.capability is not None
            and _numbers(gpu.capability) < _numbers(self.capability),
        }


_SHOWN: dict[str, Callable[[Gpu], str]] = {
    "gpu_model": lambda gpu: gpu.name,
    "gpu_memory_gib": lambda gpu: f"{gpu.name} with {gpu.memory_bytes / _GIB:.1f} GiB",
    "gpu_capability": lambda gpu: f"{gpu.name} with {gpu.capability}",
}
"""How an error at each field of `resources` describes a GPU."""


def gpu_choice(spec: RunSpec) -> GpuChoice:
    """What ``spec`` asks of its GPUs."""
    resources = spec.resources
    return GpuChoice(resources.gpu_model, resources.gpu_memory_gib, resources.gpu_capability)


def check_gpus(session: Read, spec: RunSpec) -> None:
    """Refuse GPUs that no node with enough slots has.

    Args:
        spec: with its device resolved.

    Raises:
        Invalid: at the field of `resources` that keeps the run from all nodes.
    """
    asked = spec.resources.gpu_fields
    if not asked:
        return
    if spec.resources.device is not Device.CUDA:
        field, value = next(iter(asked.items()))
        raise Invalid.at(
            f"resources.{field}", "No joined node has a GPU: leave it out, or add a node.", value
        )
    nodes = nodes_for(session, spec)
    choice = gpu_choice(spec)
    if not nodes or any(choice.suits(node.gpus) for node in nodes):
        return
    lacking = [field for node in nodes for field in choice.lacking(node.gpus)]
    field = max(asked, key=lacking.count)
    present = sorted({_SHOWN[field](gpu) for node in nodes for gpu in node.gpus})
    shown = listed(present, SHOWN_NAMES)
    message = f"No node has {choice}. The nodes with enough slots have {shown}: ask for less, or add a node."
    raise Invalid.at(f"resources.{field}", message, asked[field])


def _numbers(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.split(".")))
