"""The matmul of a linear layer, forward and backward, written once.

    y  = x · Wᵀ     forward                                   contracted over K
    dx = dy · W     backward: the layer below waits for it    contracted over N
    dW = dyᵀ · x    backward, or later: it is needed when the step ends; contracted over M

``torch.nn.functional.linear`` is this matmul as autograd computes it, and the layers of ``model`` call nothing else. A
pass that needs another number format, order or time replaces them by layers that call ``linear`` here. A layer chooses:

    number format    ``Matmuls``: how x and dy are cast, and what multiplies. ``dense`` here, ``fp8.compute.linear``
    tokens           ``Tokens``: all are on this rank, or they are sent between ranks chunk by chunk while others are multiplied
                     (``parallel.tensor.chunked_collectives``)
    when dW is       in the backward pass, or when ``Matmuls.deferred`` is called (zero bubble)
    where dW goes    autograd adds it to ``grad`` and calls hooks; the matmul adds it to ``Matmuls.total``, which is ``grad``,
                     and autograd calls the hooks; ``deferred_weight_gradients.accumulate`` adds it and calls none;
                     ``model.loss`` sums it over chunks of tokens

In one number format the matmuls are always these three, rounded in the same way. So all choices give the same bits,
except that matmuls of fewer rows, chunk by chunk, may be summed in another order, and that GPUs do not round a 16-bit
dW that they add to a float32 sum (``add_weight_gradient``).

    M tokens   K features in   N features out   F either   m some of the tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from itertools import islice
from operator import add
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients, WeightGradient

Matrix = tuple[Tensor, ...]
"""A matrix as a matmul reads it. The first tensor has a row for each token and may be sent and multiplied in parts; the
others, such as a scale, apply to all rows."""

Stored = tuple[Any, ...]
"""W as both passes read it: tensors, or None where a number format has none."""

RowMatmul = Callable[[Matrix], Tensor]
"""Multiplies rows (m, F), independently of each other, by a matrix that it has."""


class Factor(NamedTuple):
    """x or dy, of all tokens, as dW reads it."""

    matrix: Matrix
    """(M, F), or (F, M) if transposed."""

    transposed: bool = False


class Cast(NamedTuple):
    """x or dy, cast for the matmuls that read it."""

    rows: Matrix
    """(M, F), for y or dx."""

    columns: Matrix | None = None
    """(F, M), for dW. None: dW reads ``rows``."""

    amax: Tensor | None = None
    """() float32: the largest absolute value before the cast, if the number format needs it."""

    @property
    def factor(self) -> Factor:
        return Factor(self.rows) if self.columns is None else Factor(self.columns, transposed=True)


class Matmuls(Protocol):
    """The three matmuls of one layer in one number format."""

    @property
    def weight(self) -> Tensor:
        """The parameter that dW is the gradient of."""

    @property
    def probe(self) -> Tensor | None:
        """A scalar that takes no part and gets the amax of dy as its gradient."""

    @property
    def deferred(self) -> DeferredWeightGradients | None:
        """Takes dW; None if the backward pass computes it."""

    @property
    def total(self) -> Tensor | None:
        """The sum that the backward pass adds dW to, in place. Autograd then gets no gradient for ``weight``, and still
        calls the hooks that follow its accumulation. None if autograd gets dW.
        """

    def leaf(self) -> Tensor:
        """What autograd returns dW to: ``weight``, without history if dW is deferred."""

    def stored(self, leaf: Tensor) -> Stored:
        """W; it is saved for the backward pass."""

    def cast_output_gradient(self, dy_MN: Tensor, axis: Axis | None) -> Cast:
        """Cast dy, or this rank's part of it if its tokens are sharded over ``axis``."""

    def output(self, stored: Stored) -> RowMatmul:
        """Computes y (m, N) from rows of x."""

    def input_gradient(self, stored: Stored) -> RowMatmul:
        """Computes dx (m, K) from rows of dy."""

    def weight_gradient(self, dy: Factor, x: Factor) -> Tensor:
        """dW (N, K)."""

    def add_weight_gradient(self, total: Tensor, dy: Factor, x: Factor) -> None:
        """Add dW to ``total`` (N, K)."""


class Tokens(Protocol):
    """Where the tokens of x come from and those of y go to; the gradients return the same way."""

    @property
    def output_axis(self) -> Axis | None:
        """The ranks that y and dy are sharded over; None if each rank has all of their tokens."""

    def forward(self, x: Cast, matmuls: Sequence[RowMatmul]) -> tuple[Factor, list[Tensor]]:
        """Apply each of ``matmuls`` to x; returns x of all tokens, and a y for each."""

    def backward(
        self, dys: Sequence[Cast], matmuls: Sequence[RowMatmul]
    ) -> tuple[list[Factor], Callable[[], Tensor]]:
        """Apply each of ``matmuls`` to its dy; returns each dy of all tokens, and what returns the sum dx. It may still be
        in flight, and is asked for last.
        """


class _AllTokens:
    """x and y have all tokens."""

    output_axis = None

    def forward(self, x: Cast, matmuls: Sequence[RowMatmul]) -> tuple[Factor, list[Tensor]]:
        return x.factor, [matmul(x.rows) for matmul in matmuls]

    def backward(
        self, dys: Sequence[Cast], matmuls: Sequence[RowMatmul]
    ) -> tuple[list[Factor], Callable[[], Tensor]]:
        dx_MK = summed(matmul(dy.rows) for dy, matmul in zip(dys, matmuls, strict=True))
        return [dy.factor for dy in dys], lambda: dx_MK


ALL_TOKENS = _AllTokens()


def linear(x: Tensor, cast: Cast, layers: Sequence[Matmuls], tokens: Tokens = ALL_TOKENS) -> list[Tensor]:
    """x (…, T, K) → y (…, T', N) of each of ``layers``, which all read ``x``.

    Args:
        x: what dx is returned to; its values are in ``cast``.
        cast: x with its tokens in one dim, cast for ``layers``.
        tokens: T' differs from T if tokens are gathered or scattered.
    """
    if torch.is_grad_enabled():
        leaves = [leaf for layer in layers for leaf in (layer.leaf(), layer.probe)]
        outs = LinearFunction.apply(tokens, layers, cast, x.flatten(0, -2), *leaves)
    else:
        # torch 2.11's compiler would drop ``ctx`` and take ``cast`` for ``layers``.
        outs = tokens.forward(cast, [layer.output(layer.stored(layer.leaf())) for layer in layers])[1]
    return [y_MN.unflatten(0, (*x.shape[:-2], -1)) for y_MN in outs]


class LinearFunction(Function):
    """``linear`` as a node of the autograd graph."""

    @staticmethod
    def forward(
        ctx: Any, tokens: Tokens, layers: Sequence[Matmuls], cast: Cast, x_MK: Tensor, *leaves: Any
    ) -> tuple[Tensor, ...]:
        weights = [layer.stored(leaf) for layer, leaf in zip(layers, leaves[::2], strict=True)]
        matmuls = [layer.output(weight) for layer, weight in zip(layers, weights, strict=True)]
        x, outs = tokens.forward(cast, matmuls)
        ctx.tokens, ctx.layers, ctx.x_transposed = tokens, layers, x.transposed
        ctx.sizes = [len(x.matrix), *map(len, weights)]
        ctx.save_for_backward(*x.matrix, *(tensor for weight in weights for tensor in weight))
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *dys_MN: Tensor) -> tuple[Tensor | None, ...]:
        tokens: Tokens = ctx.tokens
        layers: Sequence[Matmuls] = ctx.layers
        saved = iter(ctx.saved_tensors)
        x_matrix, *weights = (tuple(islice(saved, size)) for size in ctx.sizes)
        x = Factor(x_matrix, ctx.x_transposed)
        casts = [
            layer.cast_output_gradient(dy_MN, tokens.output_axis)
            for layer, dy_MN in zip(layers, dys_MN, strict=True)
        ]
        matmuls = [layer.input_gradient(weight) for layer, weight in zip(layers, weights, strict=True)]
        dys, dx = tokens.backward(casts, matmuls)
        gradients: list[Tensor | None] = []
        for layer, cast, dy in zip(layers, casts, dys, strict=True):
            gradients += [hand_weight_gradient(layer, dy, x), cast.amax]
        return None, None, None, dx(), *gradients


def hand_weight_gradient(layer: Matmuls, dy: Factor, x: Factor) -> Tensor | None:
    """dW for autograd; None if it is deferred, or added to ``layer.total`` here."""
    if layer.deferred is not None:
        compute = partial(layer.weight_gradient, dy, x)
        layer.deferred.add(
            WeightGradient(layer.weight, compute, partial(layer.add_weight_gradient, dy=dy, x=x))
        )
        return None
    if layer.total is not None:
        layer.add_weight_gradient(layer.total, dy, x)
        return None
    return layer.weight_gradient(dy, x)


def summed(gradients_MK: Iterable[Tensor]) -> Tensor:
    """The gradient of an input that several layers read: autograd adds that of the last layer first."""
    return reduce(add, reversed(list(gradients_MK)))
