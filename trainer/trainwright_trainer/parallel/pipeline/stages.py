"""Cutting a model into the stages of a pipeline: which layers each rank keeps, and under which names.

    owns   each rank whole layers, in one stage or several        moves   nothing here; see ``passes``

A stage is some consecutive layers; the first has the embedding too, the last the norm and the head. Stages go round the
ranks, stage s to rank s mod p, or in a V, where the second half comes back the way of the first, so that one rank
has both ends:

    1f1b, p = 2            interleaved, p = 2         zbv, p = 2
    rank 0:  0             rank 0:  0   2             rank 0:  0     3
    rank 1:    1           rank 1:    1   3           rank 1:    1 2

It is a pass over a model that takes no memory yet. What a rank does not keep is gone, and what it keeps has its canonical
name. A head that is tied to the embedding is one weight with two places: where they are on two ranks, both hold a copy
under the embedding's name, and the first stage's counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainwright.contracts.layout_rules import given_stages
from trainwright.contracts.parallelism_spec import PipelineSchedule
from trainwright.contracts.run_spec import RunSpec
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.parallel.pipeline.measured import choose_stages
from trainwright_trainer.parts import Part, Parts

EMBEDDING = "embedding.weight"


@dataclass(frozen=True)
class Stage:
    """Some consecutive layers of a model."""

    number: int
    count: int
    """Stages of the whole pipeline."""

    layers: range

    @property
    def first(self) -> bool:
        return self.number == 0

    @property
    def last(self) -> bool:
        return self.number == self.count - 1

    def names(self, parts: Parts) -> list[str]:
        """Weights of this stage alone. A weight that is tied to another stage's is not."""
        beginnings = [f"layers.{layer}." for layer in self.layers]
        beginnings += [EMBEDDING] * (self.first and not tied(parts)) + ["norm.", "head."] * self.last
        return [name for name in parts.held if name.startswith(tuple(beginnings))]


@dataclass(frozen=True)
class Stages:
    """All stages of a pipeline and where they lie."""

    schedule: PipelineSchedule
    ranks: int
    layers: tuple[int, ...]
    """Number of layers of each stage."""

    remark: str = ""
    """Why these, where they were measured."""

    def rank_of(self, stage: int) -> int:
        """Place on the pipeline axis."""
        if self.schedule is PipelineSchedule.ZBV:
            return min(stage, 2 * self.ranks - 1 - stage)
        return stage % self.ranks

    def of(self, rank: int) -> list[Stage]:
        """Those of one rank, in the order of the forward pass."""
        return [stage for stage in self._all() if self.rank_of(stage.number) == rank]

    def _all(self) -> Iterator[Stage]:
        end = 0
        for number, layers in enumerate(self.layers):
            begin, end = end, end + layers
            yield Stage(number, len(self.layers), range(begin, end))


def resolve_stages(spec: RunSpec, mesh: Mesh) -> Stages | None:
    """The stages that ``spec`` asks for, None where the model is not cut; every rank must ask.

    Raises:
        BadJobError: they are to be found by measuring, and none fit into the ranks' memory.
    """
    if mesh.pipeline.ranks == 1:
        return None
    layers, remark = given_stages(spec.model, spec.parallelism), ""
    if layers is None:
        layers, remark = choose_stages(spec, mesh)
    return Stages(spec.parallelism.schedule, mesh.pipeline.ranks, layers, remark)


def cut(model: Transformer, stages: list[Stage], parts: Parts) -> Parts:
    """Leave ``model`` what ``stages`` need; returns which of its ``parts`` these are."""
    first, last = any(stage.first for stage in stages), any(stage.last for stage in stages)
    kept = {str(layer) for stage in stages for layer in stage.layers}
    for layer in set(model.layers) - kept:
        del model.layers[layer]
    if not first and not (last and tied(parts)):
        del model.embedding
    if not last:
        del model.norm, model.head
    return replace(
        parts,
        held={
            name: Part(
                parts.held[name].slice,
                counted=first or name != EMBEDDING,
                twin=name == EMBEDDING and tied(parts) and first != last,
            )
            for name, _ in model.named_parameters()
        },
    )


def tied(parts: Parts) -> bool:
    """Whether the whole model's head is its embedding."""
    return "head.weight" not in parts.order
