"""Splitting a model into pipeline stages: which layers each rank keeps, under their canonical names.

    owns   each rank entire layers, in one stage or several        moves   nothing; see ``forward_backward``

A stage is a range of layers; the first also has the embeddings, the last the norm and the head. Stages are
assigned to ranks round-robin, stage s to rank s mod p, or in a V, where the second half returns along the
first, so that one rank has both ends:

    1f1b, p = 2            interleaved, p = 2         zbv, p = 2
    rank 0:  0             rank 0:  0   2             rank 0:  0     3
    rank 1:    1           rank 1:    1   3           rank 1:    1 2

This is a pass over a model on the meta device. Modules of other ranks are deleted, and the rest keep their
canonical names. A head that is tied to the embedding is one weight in two places: if they are on two ranks,
both have a copy under the embedding's name, and the first stage's is primary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainwright.contracts.layout_rules import configured_stages
from trainwright.contracts.parallelism_spec import PipelineSchedule
from trainwright.contracts.run_spec import RunSpec
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import ShardSpec, ShardSpecs
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.parallel.pipeline.auto_stages import choose_stages

EMBEDDING = "embedding.weight"


@dataclass(frozen=True)
class Stage:
    """A range of layers of a model."""

    number: int
    count: int
    """Stages of the entire pipeline."""

    layers: range

    @property
    def first(self) -> bool:
        return self.number == 0

    @property
    def last(self) -> bool:
        return self.number == self.count - 1

    def weight_names(self, shard_specs: ShardSpecs) -> list[str]:
        """Weights of this stage alone, without one that is tied to another stage's."""
        beginnings = [f"layers.{layer}." for layer in self.layers] + ["position_embedding."] * self.first
        beginnings += [EMBEDDING] * (self.first and not has_tied_head(shard_specs)) + [
            "norm.",
            "head.",
        ] * self.last
        return [name for name in shard_specs.local if name.startswith(tuple(beginnings))]


@dataclass(frozen=True)
class Stages:
    """All stages of a pipeline and their ranks."""

    schedule: PipelineSchedule
    ranks: int
    layers: tuple[int, ...]
    """Number of layers of each stage."""

    note: str = ""
    """Explains the split, if it was measured."""

    def rank_of(self, stage: int) -> int:
        """Rank on the pipeline axis."""
        if self.schedule is PipelineSchedule.ZBV:
            return min(stage, 2 * self.ranks - 1 - stage)
        return stage % self.ranks

    def of_rank(self, rank: int) -> list[Stage]:
        """Stages of one rank, in the order of the forward pass."""
        return [stage for stage in self._all() if self.rank_of(stage.number) == rank]

    def _all(self) -> Iterator[Stage]:
        end = 0
        for number, layers in enumerate(self.layers):
            begin, end = end, end + layers
            yield Stage(number, len(self.layers), range(begin, end))


def resolve_stages(spec: RunSpec, mesh: Mesh) -> Stages | None:
    """The stages that ``spec`` asks for, or None without a pipeline; every rank must call this.

    Raises:
        BadJobError: stages must be chosen by measurement, and none fit into the ranks' memory.
    """
    if mesh.pipeline.ranks == 1:
        return None
    layers, note = configured_stages(spec.model, spec.parallelism), ""
    if layers is None:
        layers, note = choose_stages(spec, mesh)
    return Stages(spec.parallelism.schedule, mesh.pipeline.ranks, layers, note)


def split_model(model: Transformer, stages: list[Stage], shard_specs: ShardSpecs) -> ShardSpecs:
    """Reduce ``model`` to the modules of ``stages``; returns their subset of ``shard_specs``."""
    first, last = any(stage.first for stage in stages), any(stage.last for stage in stages)
    kept = {str(layer) for stage in stages for layer in stage.layers}
    for layer in set(model.layers) - kept:
        del model.layers[layer]
    if not first and not (last and has_tied_head(shard_specs)):
        del model.embedding
    if not first:
        model.position_embedding = None
    if not last:
        del model.norm, model.head
    return replace(
        shard_specs,
        local={
            name: ShardSpec(
                shard_specs.local[name].slice,
                is_primary=first or name != EMBEDDING,
                is_tied_replica=name == EMBEDDING and has_tied_head(shard_specs) and first != last,
            )
            for name, _ in model.named_parameters()
        },
    )


def has_tied_head(shard_specs: ShardSpecs) -> bool:
    """Whether the model's head is its embedding."""
    return "head.weight" not in shard_specs.forward_order
