"""Keys and values of a batch of texts, so that a pass that continues them reads their new tokens only.

The first pass over the texts is an ordinary one; layers leave here what later tokens need of it. In each pass after it, row b
has the tokens from position ``starts[b]`` on, and attention sees all kept tokens up to each of them. Texts have different
lengths: what a pass computed after the end of a text is replaced by the pass that continues it.

    B sequence   T position   N new position   K features
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainwright_trainer.model.masks import sees


class KeyValueCache:
    """What the layers of a model keep of the tokens before. One cache per batch of texts."""

    def __init__(self) -> None:
        self.starts: Sequence[int] | None = None
        """The position of each row's first token in this pass; None in the first pass, where all rows start at 0."""

        self._kept: dict[nn.Module, tuple[Tensor, ...]] = {}

    def extend(self, layer: nn.Module, *new: Tensor) -> tuple[Tensor, ...]:
        """Keep what ``layer`` computed for the tokens of this pass, each (B, …, N, K); returns all that is kept, (B, …, T, K).

        Returns ``new`` itself in the first pass.
        """
        if self.starts is None:
            self._kept[layer] = new
        else:
            self._kept[layer] = tuple(
                self._replace(old, each) for old, each in zip(self._kept[layer], new, strict=True)
            )
        return self._kept[layer]

    def positions(self, count: int, device: torch.device) -> Tensor:
        """(B, N): the positions of this pass's ``count`` tokens per row."""
        starts_B = torch.tensor(self.starts, device=device)
        return starts_B[:, None] + torch.arange(count, device=device)

    def mask(self, count: int, kept: int, window: int | None, device: torch.device) -> Tensor:
        """(B, 1, N, T): whether the tokens of this pass attend to each of the ``kept`` tokens."""
        places_T = torch.arange(kept, device=device)
        visible_BNT: Tensor = sees(self.positions(count, device)[:, :, None], places_T, window or kept)
        return visible_BNT[:, None]

    def before(self, kept_BTK: Tensor, count: int) -> Tensor:
        """(B, count, K): the tokens just before those of this pass; zeros before the first of a text."""
        padded_BTK = nn.functional.pad(kept_BTK, (0, 0, count, 0))
        return padded_BTK.gather(1, _like(self.positions(count, kept_BTK.device), padded_BTK))

    def _replace(self, old: Tensor, new: Tensor) -> Tensor:
        """``old`` with the tokens of this pass, longer if they end after it."""
        at_BN = self.positions(new.shape[-2], new.device)
        missing = max(self.starts or ()) + new.shape[-2] - old.shape[-2]
        longer = nn.functional.pad(old, (0, 0, 0, max(missing, 0)))
        return longer.scatter(-2, _like(at_BN, new), new)


def next_pass(
    texts: Sequence[list[int]], cache: KeyValueCache | None, positions: int, end_of_text: int | None = None
) -> tuple[KeyValueCache, list[list[int]]]:
    """The input of the pass that computes the tokens after ``texts``: a cache, and the tokens of each text that it lacks.

    Args:
        cache: of the previous pass, after which each unfinished text got one token; None for the first pass.
        positions: number of positions that the model has. A longer text is read from its last tokens each time, because all positions change.
        end_of_text: the token after which a document starts, if documents are masked. A prompt may contain it; such a text
            is read in full each time.
    """
    several_documents = any(end_of_text in ids for ids in texts)
    if cache is None or several_documents or max(map(len, texts)) > positions:
        return KeyValueCache(), [ids[-positions:] for ids in texts]
    cache.starts = [len(ids) - 1 for ids in texts]
    return cache, [ids[-1:] for ids in texts]


def _like(at_BN: Tensor, values: Tensor) -> Tensor:
    """Positions as an index into the second to last dimension of ``values``, (B, …, N, K)."""
    shape = (len(at_BN), *[1] * (values.dim() - 3), at_BN.shape[1], 1)
    return at_BN.view(shape).expand(*values.shape[:-2], at_BN.shape[1], values.shape[-1])
