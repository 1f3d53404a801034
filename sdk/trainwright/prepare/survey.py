"""Survey: which documents a recipe keeps, and what it leaves out, from the measures of the pieces.

    hashes ─▶ duplicates ─▶ rules ─▶ mixture ─▶ a keep mask for each piece, and the counts

A mask holds one byte a document: 0 where it is kept, else which part of the recipe left it out (`Kept`); the first part
that applies counts. Texts are not read. Memory holds one piece's measures, a bucket of hashes and a bit a document.

A quick count reads the measures of some pieces only, evenly spaced within each source, and scales up what it finds,
source by source. Documents and duplicates are exact even then: duplicates stand far apart, and a sample would miss them.

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

from trainwright.contracts.api.datasets import HistogramBin
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

    documents: Sequence[int] | None = None
    """Of each piece, where they are known; else the pieces are asked."""


class SourceShare(Envelope):
    """What one source gives."""

    documents: int
    characters: int


class SurveyResult(Envelope):
    """The counts. Of a quick one, ``documents``, ``rejected`` and ``duplicates`` are exact, and the others scaled up."""

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
    """Share of the documents in the pieces whose measures were read."""


@dataclass(frozen=True)
class _Piece:
    """One piece of one source."""

    number: int
    """Its place among all pieces of all sources."""

    source: int
    path: Path
    own_masks: Sequence[bytes] | None
    place: int
    """Its place among the pieces, and the masks, of its source."""

    first: int
    """Number of its first document."""

    documents: int

    def own_mask(self) -> Mask:
        """What the source's own recipe says of its documents."""
        if self.own_masks is None:
            return np.zeros(self.documents, np.uint8)
        mask = np.frombuffer(self.own_masks[self.place], np.uint8)
        assert len(mask) == self.documents, f"{self.path}: the mask is of another piece"
        return mask


@dataclass(frozen=True)
class _Exact:
    """What is counted in all pieces, one entry for each."""

    documents: NDArray[np.int64]
    """That their sources keep."""

    duplicates: NDArray[np.int64]


@dataclass(frozen=True)
class _Looked:
    """The pieces whose measures are read, and what their counts are multiplied by."""

    pieces: Sequence[_Piece]
    scales: Sequence[float]
    """For each source; 1 where all its pieces are read."""


def survey(
    sources: Sequence[SurveySource],
    recipe: Recipe,
    on_mask: OnMask | None = None,
    rejected: int = 0,
    most_pieces: int | None = None,
    folder: Path | None = None,
) -> SurveyResult:
    """Count what ``recipe`` makes of ``sources``.

    Args:
        on_mask: is given each piece's place among all of them and its mask, in order.
        rejected: rows that gave no document, passed on into the result.
        most_pieces: read the measures of no more than these, but of one a source at least; no masks then.
        folder: takes work in progress, 24 bytes a document; a process that is killed leaves it there.
    """
    assert on_mask is None or most_pieces is None, "masks need all pieces"
    pieces = list(_pieces(sources))
    total = sum(piece.documents for piece in pieces)
    with Duplicates(total, folder) as duplicates:
        exact = _find_duplicates(pieces, duplicates)
        looked = _look_at(pieces, exact, recipe, len(sources), most_pieces)
        limits = _mixture_limits(sources, looked, recipe, duplicates)
        counts = _Counts(exact, looked.scales)
        for piece in looked.pieces:
            again = duplicates.between(piece.first, piece.first + piece.documents)
            measures = read_measures(piece.path)
            mask = _mask(piece, measures, recipe, again)
            if limits is not None:
                _leave_out(mask, mix_ranks(measures.hash) >= limits[piece.source], Kept.MIXTURE)
            counts.add(piece, measures, mask)
            if on_mask is not None:
                on_mask(piece.number, mask.tobytes())
    read = sum(piece.documents for piece in looked.pieces)
    return counts.result(_parts(recipe, limits is not None), rejected, read / total if total else 1.0)


def _pieces(sources: Sequence[SurveySource]) -> Iterator[_Piece]:
    number = first = 0
    for at, source in enumerate(sources):
        sizes = source.documents or [count_documents(path) for path in source.pieces]
        for place, (path, documents) in enumerate(zip(source.pieces, sizes, strict=True)):
            yield _Piece(number, at, path, source.masks, place, first, documents)
            number, first = number + 1, first + documents


def _find_duplicates(pieces: Sequence[_Piece], duplicates: Duplicates) -> _Exact:
    documents = []
    for piece in pieces:
        takes_part = piece.own_mask() == Kept.KEPT
        duplicates.add(read_hashes(piece.path), takes_part)
        documents.append(int(takes_part.sum()))
    duplicates.find()
    again = [int(duplicates.between(piece.first, piece.first + piece.documents).sum()) for piece in pieces]
    return _Exact(np.array(documents, np.int64), np.array(again, np.int64))


def _look_at(
    pieces: Sequence[_Piece], exact: _Exact, recipe: Recipe, sources: int, most_pieces: int | None
) -> _Looked:
    """Pieces of each source, evenly spaced among those that have anything left, in proportion to their number."""
    if most_pieces is None or len(pieces) <= most_pieces:
        return _Looked(pieces, [1.0] * sources)
    # Duplicates are known: what is scaled up is what the rest of the recipe makes of the others.
    left = exact.documents - exact.duplicates if recipe.drop_duplicates else exact.documents
    looked, scales = [], []
    for source in range(sources):
        full = [piece for piece in pieces if piece.source == source and left[piece.number]]
        count = min(len(full), max(1, most_pieces * len(full) // len(pieces)))
        chosen = [full[int((place + 0.5) * len(full) / count)] for place in range(count)]
        looked += chosen
        counted = sum(left[piece.number] for piece in chosen)
        scales.append(float(sum(left[piece.number] for piece in full) / counted) if counted else 1.0)
    return _Looked(looked, scales)


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
    sources: Sequence[SurveySource], looked: _Looked, recipe: Recipe, duplicates: Duplicates
) -> list[float] | None:
    """For each source the rank below which its documents are taken; None when nothing is mixed."""
    if all(source.weight is None for source in sources):
        return None
    characters_by_rank = np.zeros((len(sources), RANKS), np.int64)
    for piece in looked.pieces:
        measures = read_measures(piece.path)
        again = duplicates.between(piece.first, piece.first + piece.documents)
        kept = _mask(piece, measures, recipe, again) == Kept.KEPT
        ranks = (mix_ranks(measures.hash[kept]) * RANKS).astype(np.int64)
        np.add.at(characters_by_rank[piece.source], ranks, measures.characters[kept])
    weights = np.array([source.weight or 0.0 for source in sources])
    shares = weights / weights.sum()
    characters = characters_by_rank.sum(axis=1) * np.array(looked.scales)
    least = min(total / share for total, share in zip(characters, shares, strict=True) if share)
    return [
        _limit(by_rank, share * least / scale)
        for by_rank, share, scale in zip(characters_by_rank, shares, looked.scales, strict=True)
    ]


def _limit(characters_by_rank: NDArray[np.int64], wanted: float) -> float:
    """The rank below which the documents have ``wanted`` characters, as nearly as the steps allow."""
    sums = np.concatenate([[0], np.cumsum(characters_by_rank)])
    # Of the steps that come equally near, the first: behind the last document nothing is added.
    return float(np.argmin(np.abs(sums - wanted))) / RANKS


class _Counts:
    """Adds up what the masks say, source by source."""

    def __init__(self, exact: _Exact, scales: Sequence[float]) -> None:
        self._exact = exact
        self._scales = np.array(scales)
        self._parts = np.zeros((len(scales), len(Kept)), np.int64)
        self._lengths = np.zeros((len(scales), MOST_EXPONENT + 1), np.int64)
        self._characters = np.zeros(len(scales), np.int64)

    def add(self, piece: _Piece, measures: Measures, mask: Mask) -> None:
        kept = measures.characters[mask == Kept.KEPT]
        self._parts[piece.source] += np.bincount(mask[piece.own_mask() == Kept.KEPT], minlength=len(Kept))
        self._lengths[piece.source] += np.bincount(_exponents(kept), minlength=MOST_EXPONENT + 1)
        self._characters[piece.source] += kept.sum(dtype=np.int64)

    def result(self, parts: Sequence[Kept], rejected: int, counted_fraction: float) -> SurveyResult:
        kept = self._scaled(self._parts[:, Kept.KEPT])
        characters = self._scaled(self._characters)
        dropped = {part: int(self._scaled(self._parts[:, part]).sum()) for part in parts}
        duplicates = int(self._exact.duplicates.sum())
        if Kept.DUPLICATE in dropped:
            dropped[Kept.DUPLICATE] = duplicates
        return SurveyResult(
            documents=int(self._exact.documents.sum()),
            kept=int(kept.sum()),
            characters=int(characters.sum()),
            rejected=rejected,
            duplicates=duplicates,
            dropped={part.name.lower(): count for part, count in dropped.items()},
            lengths=_bins(self._scaled(self._lengths).sum(axis=0)),
            shares=[
                SourceShare(documents=int(count), characters=int(size))
                for count, size in zip(kept, characters, strict=True)
            ],
            counted_fraction=counted_fraction,
        )

    def _scaled(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of all pieces, as far as those that were read tell; ``counts`` has a row for each source."""
        scaled: NDArray[np.float64] = (counts.T * self._scales).T
        return np.rint(scaled).astype(np.int64)


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
