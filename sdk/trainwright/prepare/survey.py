"""Survey: which documents a recipe keeps, and what it leaves out, from the measures of the pieces.

    hashes ─▶ duplicates ─▶ rules ─▶ mixture ─▶ a keep mask for each piece, and the counts

A mask holds one byte a document: 0 where it is kept, else which part of the recipe left it out (`Kept`); the first part
that applies counts. Texts are not read. Memory holds one piece's measures, a bucket of hashes and a bit a document.

In a mixture each source's own masks hold first, then the mixture's own recipe. Then the scarcest source, measured by
its weight, is taken whole and sets the mixture's size: source i with weight share w gives w·T characters, where
T is the least of characters ÷ w over the sources. Its documents are chosen by a hash of their texts, up to the rank by
which it has given its characters: the same ones each time, and none twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainwright.contracts.api import HistogramBin
from trainwright.contracts.base import Envelope
from trainwright.contracts.recipe import Recipe, Rules
from trainwright.prepare.documents import mix_ranks
from trainwright.prepare.duplicates import Duplicates
from trainwright.prepare.measures import Measures
from trainwright.prepare.pieces import count_documents, read_hashes, read_measures

RANKS = 2**16
"""Steps in which a mixture's shares are set; one is 1/65,536 of a source."""
MOST_EXPONENT = 31

Mask = NDArray[np.uint8]
OnMask = Callable[[int, bytes], None]


class Kept(IntEnum):
    """What becomes of a document; in lower case, the names that statistics use."""

    KEPT = 0
    DUPLICATE = 1
    MIN_CHARACTERS = 2
    MAX_CHARACTERS = 3
    MIN_LETTER_FRACTION = 4
    MAX_REPEATED_LINE_FRACTION = 5
    MIN_MEAN_WORD_CHARACTERS = 6
    MAX_MEAN_WORD_CHARACTERS = 7
    MIXTURE = 8


@dataclass(frozen=True)
class SurveySource:
    """What is surveyed together: the pieces of a version's files, or those of a version that is mixed."""

    pieces: Sequence[Path]
    weight: float | None = None
    """Set in mixtures only."""

    masks: Sequence[bytes] | None = None
    """A mixed version's own masks, read when they are needed: what they leave out does not exist for the mixture."""


class SourceShare(Envelope):
    """What one source gives."""

    documents: int
    characters: int


class SurveyResult(Envelope):
    """The counts; where only some pieces were counted, scaled up from them, but for ``rejected``."""

    documents: int
    """Of the sources, after their own masks."""

    kept: int
    characters: int
    """Of the documents that are kept."""

    rejected: int
    duplicates: int
    """Documents whose text stood before, left out or not."""

    dropped: dict[str, int] = {}
    """By `Kept`'s names; only parts that the recipe has."""

    lengths: list[HistogramBin] = []
    """Kept documents by characters, up to powers of two."""

    shares: list[SourceShare] = []
    """One for each source."""

    counted_fraction: float = 1.0
    """Share of the documents in the pieces that were looked at."""


@dataclass(frozen=True)
class _Piece:
    """One of the pieces that are looked at."""

    number: int
    """Its place among all pieces of all sources."""

    source: int
    path: Path
    own_masks: Sequence[bytes] | None
    place: int
    """Its place among the pieces, and the masks, of its source."""

    first: int
    """Number of its first document among those that are looked at."""

    documents: int

    def own_mask(self) -> Mask:
        """What the source's own recipe says of its documents."""
        if self.own_masks is None:
            return np.zeros(self.documents, np.uint8)
        mask = np.frombuffer(self.own_masks[self.place], np.uint8)
        assert len(mask) == self.documents, f"{self.path}: the mask is of another piece"
        return mask


def survey(
    sources: Sequence[SurveySource],
    recipe: Recipe,
    on_mask: OnMask | None = None,
    rejected: int = 0,
    most_pieces: int | None = None,
) -> SurveyResult:
    """Count what ``recipe`` makes of ``sources``.

    Args:
        on_mask: is given each piece's place among all of them and its mask, in order.
        rejected: rows that gave no document, passed on into the result.
        most_pieces: look at no more than these, evenly spaced; no masks then.
    """
    assert on_mask is None or most_pieces is None, "masks need all pieces"
    pieces, total = _plan(sources, most_pieces)
    with Duplicates(sum(piece.documents for piece in pieces)) as duplicates:
        for piece in pieces:
            duplicates.add(read_hashes(piece.path), piece.own_mask() == Kept.KEPT)
        duplicates.find()
        limits = _mixture_limits(sources, pieces, recipe, duplicates)
        counts = _Counts(len(sources))
        for piece in pieces:
            again = duplicates.between(piece.first, piece.first + piece.documents)
            measures = read_measures(piece.path)
            mask = _mask(piece, measures, recipe, again)
            if limits is not None:
                _leave_out(mask, mix_ranks(measures.hash) >= limits[piece.source], Kept.MIXTURE)
            counts.add(piece, measures, mask, again)
            if on_mask is not None:
                on_mask(piece.number, mask.tobytes())
    counted = sum(piece.documents for piece in pieces)
    return counts.result(_parts(recipe, limits is not None), rejected, counted / total if total else 1.0)


def _plan(sources: Sequence[SurveySource], most_pieces: int | None) -> tuple[list[_Piece], int]:
    """The pieces to look at, and the documents in all pieces."""
    all_pieces = [
        (number, place, path)
        for number, source in enumerate(sources)
        for place, path in enumerate(source.pieces)
    ]
    sizes = [count_documents(path) for _, _, path in all_pieces]
    count = len(all_pieces)
    chosen = range(count)
    if most_pieces is not None and most_pieces < count:
        chosen = [int((place + 0.5) * count / most_pieces) for place in range(most_pieces)]  # type: ignore[assignment]
    found, first = [], 0
    for number in chosen:
        source, place, path = all_pieces[number]
        found.append(_Piece(number, source, path, sources[source].masks, place, first, sizes[number]))
        first += sizes[number]
    return found, sum(sizes)


def _mask(piece: _Piece, measures: Measures, recipe: Recipe, again: NDArray[np.bool_]) -> Mask:
    """What becomes of each document, the mixture aside."""
    mask = piece.own_mask().copy()
    if recipe.drop_duplicates:
        _leave_out(mask, again, Kept.DUPLICATE)
    for part, broken in _broken_rules(measures, recipe.rules):
        _leave_out(mask, broken, part)
    return mask


def _broken_rules(measures: Measures, rules: Rules) -> Iterator[tuple[Kept, NDArray[np.bool_]]]:
    """For each rule that is set, the documents that break it."""
    if rules.min_characters is not None:
        yield Kept.MIN_CHARACTERS, measures.characters < rules.min_characters
    if rules.max_characters is not None:
        yield Kept.MAX_CHARACTERS, measures.characters > rules.max_characters
    # Measures are float32: a limit is rounded alike, so that a document right at it is kept.
    if rules.min_letter_fraction is not None:
        yield Kept.MIN_LETTER_FRACTION, measures.letter_fraction < np.float32(rules.min_letter_fraction)
    if rules.max_repeated_line_fraction is not None:
        most = np.float32(rules.max_repeated_line_fraction)
        yield Kept.MAX_REPEATED_LINE_FRACTION, measures.repeated_line_fraction > most
    if rules.min_mean_word_characters is not None:
        least = np.float32(rules.min_mean_word_characters)
        yield Kept.MIN_MEAN_WORD_CHARACTERS, measures.mean_word_characters < least
    if rules.max_mean_word_characters is not None:
        most = np.float32(rules.max_mean_word_characters)
        yield Kept.MAX_MEAN_WORD_CHARACTERS, measures.mean_word_characters > most


def _leave_out(mask: Mask, wanted: NDArray[np.bool_], part: Kept) -> None:
    mask[wanted & (mask == Kept.KEPT)] = part


def _parts(recipe: Recipe, is_mixture: bool) -> list[Kept]:
    """The parts of the recipe that can leave out documents."""
    found = [Kept.DUPLICATE] if recipe.drop_duplicates else []
    found += [Kept[name.upper()] for name, limit in recipe.rules if limit is not None]
    return [*found, Kept.MIXTURE] if is_mixture else found


def _mixture_limits(
    sources: Sequence[SurveySource], pieces: Sequence[_Piece], recipe: Recipe, duplicates: Duplicates
) -> list[float] | None:
    """For each source the rank below which its documents are taken; None when nothing is mixed."""
    if all(source.weight is None for source in sources):
        return None
    characters_by_rank = np.zeros((len(sources), RANKS), np.int64)
    for piece in pieces:
        measures = read_measures(piece.path)
        again = duplicates.between(piece.first, piece.first + piece.documents)
        kept = _mask(piece, measures, recipe, again) == Kept.KEPT
        ranks = (mix_ranks(measures.hash[kept]) * RANKS).astype(np.int64)
        np.add.at(characters_by_rank[piece.source], ranks, measures.characters[kept])
    weights = np.array([source.weight or 0.0 for source in sources])
    shares = weights / weights.sum()
    least = min(
        total / share for total, share in zip(characters_by_rank.sum(axis=1), shares, strict=True) if share
    )
    return [_limit(by_rank, share * least) for by_rank, share in zip(characters_by_rank, shares, strict=True)]


def _limit(characters_by_rank: NDArray[np.int64], wanted: float) -> float:
    """The rank below which the documents have ``wanted`` characters, as nearly as the steps allow."""
    sums = np.concatenate([[0], np.cumsum(characters_by_rank)])
    # Of the steps that come equally near, the first: behind the last document nothing is added.
    return float(np.argmin(np.abs(sums - wanted))) / RANKS


class _Counts:
    """Adds up what the masks say."""

    def __init__(self, sources: int) -> None:
        self._documents = 0
        self._duplicates = 0
        self._dropped = np.zeros(len(Kept), np.int64)
        self._lengths = np.zeros(MOST_EXPONENT + 1, np.int64)
        self._shares = np.zeros((sources, 2), np.int64)

    def add(self, piece: _Piece, measures: Measures, mask: Mask, again: NDArray[np.bool_]) -> None:
        exists = piece.own_mask() == Kept.KEPT
        kept = measures.characters[mask == Kept.KEPT]
        self._documents += int(exists.sum())
        self._duplicates += int((again & exists).sum())
        self._dropped += np.bincount(mask[exists], minlength=len(Kept))
        self._lengths += np.bincount(_exponents(kept), minlength=MOST_EXPONENT + 1)
        self._shares[piece.source] += (len(kept), kept.sum(dtype=np.int64))

    def result(self, parts: Sequence[Kept], rejected: int, counted_fraction: float) -> SurveyResult:
        def scaled(count: np.int64 | int) -> int:
            return round(int(count) / counted_fraction) if counted_fraction else 0

        return SurveyResult(
            documents=scaled(self._documents),
            kept=scaled(self._dropped[Kept.KEPT]),
            characters=scaled(self._shares[:, 1].sum()),
            rejected=rejected,
            duplicates=scaled(self._duplicates),
            dropped={part.name.lower(): scaled(self._dropped[part]) for part in parts},
            lengths=[
                bin_.model_copy(update={"documents": scaled(bin_.documents)}) for bin_ in _bins(self._lengths)
            ],
            shares=[
                SourceShare(documents=scaled(kept), characters=scaled(size)) for kept, size in self._shares
            ],
            counted_fraction=counted_fraction,
        )


def length_histogram(lengths: NDArray[np.integer]) -> list[HistogramBin]:
    """Counts of ``lengths`` up to powers of two, from the first bin that has any to the last."""
    return _bins(np.bincount(_exponents(lengths), minlength=MOST_EXPONENT + 1))


def _exponents(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """The least e for which 2^e is not less than the length; frexp is exact where log2 is not."""
    mantissa, exponent = np.frexp(lengths.astype(np.float64))
    return np.maximum(np.where(mantissa == 0.5, exponent - 1, exponent), 0).astype(np.int64)


def _bins(counts: NDArray[np.int64]) -> list[HistogramBin]:
    filled = np.flatnonzero(counts)
    if not len(filled):
        return []
    return [
        HistogramBin(upto=2**exponent, documents=int(counts[exponent]))
        for exponent in range(filled[0], filled[-1] + 1)
    ]
