"""What data ranks share instead of copying, and which share is this rank's (ZeRO, Rajbhandari et al. 2020).

    stage 1   moments: each weight has one owner, who moves it and hands it round      ``owners``
    stage 2   gradients too: they are added up at the owner only                       ``gradient_shares``
    stage 3   weights too: each rank holds a slice of every matrix                     ``slices``

``optim.sharded`` moves the shares, whatever the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from trainwright_trainer.mesh import Mesh
from trainwright_trainer.parallel.data.gradient_shares import GradientShares
from trainwright_trainer.parallel.data.owners import OwnedWeights
from trainwright_trainer.parallel.data.replicate import GradientBuckets
from trainwright_trainer.parts import Part, Parts


class Gradients(Protocol):
    """Adds gradients up over the data ranks. Its methods follow the ``Updater``'s of a step."""

    def clear(self) -> None:
        """Forget the gradients of the step before."""

    def end_round(self) -> None:
        """A backward pass that is not the step's last has ended."""

    def send_as_ready(self) -> None:
        """The next backward pass is the step's last."""

    def complete(self, weights: Iterable[nn.Parameter]) -> None:
        """The gradients of ``weights`` are complete, whether or not autograd's hooks have told so."""

    def wait(self) -> None:
        """Return when all sums are there, as the gradients of the weights that are moved here."""


@dataclass(frozen=True)
class Shares:
    """One rank's share of a model."""

    weights: Mapping[str, nn.Parameter]
    """What is held, whole or in slices, by canonical name."""

    moved: Mapping[str, nn.Parameter]
    """What this rank moves, and keeps moments of."""

    spoken_for: frozenset[str]
    """Of these, the ones that no other rank of the shard axis speaks for."""

    parts: Mapping[str, Part]
    """Of ``weights``."""

    order: Mapping[str, int]
    """As in ``Parts``."""

    gradients: Gradients
    gradients_cut: bool
    """Whether only those of ``moved`` have sums here."""

    hand_round: Callable[[], None]
    """To be called when weights have been moved: all ranks that use them get them."""


def share_states(model: nn.Module, parts: Parts, mesh: Mesh) -> Shares:
    """Cut moments over the shard axis (stage 1)."""
    weights = dict(model.named_parameters())
    owned = OwnedWeights(weights, mesh.shard, parts.twins)
    gradients = GradientBuckets(list(weights.values()), mesh.data, {weights[name] for name in parts.twins})
    return _by_owner(weights, owned, parts, gradients, mesh, cut=False)


def share_gradients(model: nn.Module, parts: Parts, mesh: Mesh) -> Shares:
    """Cut moments and gradients over the shard axis (stage 2)."""
    weights = dict(model.named_parameters())
    owned = OwnedWeights(weights, mesh.shard, parts.twins)
    every_round = mesh.pipeline.ranks == 1
    gradients = GradientShares(weights, owned.owners, mesh, every_round, parts.twins)
    return _by_owner(weights, owned, parts, gradients, mesh, cut=True)


def _by_owner(
    weights: Mapping[str, nn.Parameter],
    owned: OwnedWeights,
    parts: Parts,
    gradients: Gradients,
    mesh: Mesh,
    cut: bool,
) -> Shares:
    mine = {name: weight for name, weight in weights.items() if owned.owners[name] == mesh.shard.rank}
    return Shares(weights, mine, frozenset(mine), parts.held, parts.order, gradients, cut, owned.hand_round)
