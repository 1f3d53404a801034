"""What the FP8 layers saw in a step, and the scales that follow from it.

Each layer meets two tensors that it knows only once they are there: its input and the gradient of its output. Their
scale comes from the present amax, or from the largest of the last 16 steps, which is known before and so saves a
pass over the tensor (delayed scaling: Micikevicius et al. 2022, arXiv 2209.05433). Delayed rules:

    the first 16 steps          present amax
    amax not finite             dropped; the tensor's 16 steps begin anew
    all of the 16 steps zero    the scale stays; present amax if there was none

An amax that is not finite is an overflow that no cast shows, since values are clamped: ``finite`` tells it.

    L layers, in the order of the forward pass   2 input, gradient of the output   H = 16 steps of history

Numbers of all layers are stacked once a step; nothing here makes the host wait but what it reads to report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from trainwright.contracts.precision_spec import AmaxKind
from trainwright_trainer.fp8.formats import E4M3, E5M2, LARGEST, scale_for
from trainwright_trainer.fp8.roster import Roster
from trainwright_trainer.mesh import Axis

HISTORY_STEPS = 16

_SIDES = ("input", "output_gradient")


class Tap(NamedTuple):
    """Where one layer leaves its amaxes and finds its scales: scalars, float32."""

    input_amax: Tensor
    input_scale: Tensor
    output_gradient_probe: Tensor
    """A leaf whose gradient is the amax."""

    output_gradient_scale: Tensor


class AmaxRecords:
    """The amaxes and scales of all FP8 layers of a model.

    A step is: ``end_round`` after each backward pass, then ``end_step``, or ``drop_step`` if its update is skipped.
    """

    def __init__(self, taps: Mapping[str, Tap], amax: AmaxKind, device: torch.device | None = None) -> None:
        """``device`` is needed where there may be no layer: a stage of a pipeline may have none in FP8."""
        self.names = list(taps)
        self._delayed = amax is AmaxKind.DELAYED
        self._inputs = [tap.input_amax for tap in taps.values()]
        self._scales = [
            scale for tap in taps.values() for scale in (tap.input_scale, tap.output_gradient_scale)
        ]
        layers, device = len(taps), device or self._inputs[0].device
        self._round_L = torch.zeros(layers, device=device)
        self._gradients_L = torch.zeros(layers, device=device)
        for tap, place in zip(taps.values(), self._round_L.unbind(), strict=True):
            tap.output_gradient_probe.grad = place  # autograd adds into it
        self._amax_L2 = torch.zeros(layers, 2, device=device)
        self._in_force_L2 = torch.ones(layers, 2, device=device)
        self._collected = False
        self._scale_L2 = torch.zeros(layers, 2, device=device)
        self._history_HL2 = torch.zeros(HISTORY_STEPS, layers, 2, device=device)
        self._filled_L2 = torch.zeros(layers, 2, dtype=torch.int32, device=device)

    def end_round(self) -> None:
        """A backward pass has ended."""
        torch.maximum(self._gradients_L, self._round_L, out=self._gradients_L)
        self._round_L.zero_()
        self._collected = False

    def collect(self, ranks: Axis) -> None:
        """Take the step's amaxes, the largest over ``ranks``, which hold the same layers; calling again changes nothing."""
        if self._collected or not self.names:
            return
        self._collected = True
        self._amax_L2.copy_(ranks.max(torch.stack((torch.stack(self._inputs), self._gradients_L), dim=1)))
        present_L2 = _scales(self._amax_L2)
        self._in_force_L2.copy_(torch.where(self._scale_L2 > 0, self._scale_L2, present_L2))
        torch._foreach_zero_(self._inputs)
        self._gradients_L.zero_()

    def finite(self) -> Tensor:
        """() bool, on the device: whether all amaxes of the collected step are finite."""
        return torch.isfinite(self._amax_L2).all()

    def end_step(self, ranks: Axis) -> None:
        """The step counts: its amaxes enter the history, from which the next scales follow."""
        self.collect(ranks)
        if not self._delayed:
            return
        finite_L2 = torch.isfinite(self._amax_L2)
        newest_L2 = torch.where(finite_L2, self._amax_L2, 0.0)
        self._history_HL2.copy_(torch.cat((newest_L2[None], self._history_HL2[:-1])))
        self._filled_L2.copy_(torch.where(finite_L2, (self._filled_L2 + 1).clamp(max=HISTORY_STEPS), 0))
        self._set_scales()

    def drop_step(self, ranks: Axis) -> None:
        """The step is skipped: no amax of it is remembered, and those that were not finite begin anew."""
        self.collect(ranks)
        if not self._delayed:
            return
        self._filled_L2.mul_(torch.isfinite(self._amax_L2))
        self._set_scales()

    def saturated(self, layers: Roster | None = None) -> Tensor:
        """() float32: fraction of all layers' inputs and output gradients that were clamped in the last step.

        With the present amax none ever is; a delayed scale may be too small for a tensor that grew.

        Args:
            layers: those of the whole model, all of whose ranks then ask; those here when left out.
        """
        _, (amax_L2, in_force_L2) = self._seen(layers)
        largest_2 = amax_L2.new_tensor((LARGEST[E4M3], LARGEST[E5M2]))
        clamped_L2: Tensor = amax_L2 > largest_2 * in_force_L2
        return clamped_L2.float().mean()

    def observed(self, layers: Roster | None = None) -> dict[str, tuple[float, float]]:
        """Amax and scale of each tensor in the last step, `<weight>:input` and `<weight>:output_gradient`."""
        names, numbers_AL2 = self._seen(layers)
        return {
            f"{name}:{side}": (pair[0], pair[1])
            for name, sides in zip(names, numbers_AL2.movedim(0, 2).tolist(), strict=True)
            for side, pair in zip(_SIDES, sides, strict=True)
        }

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on, (…, L, 2): equal on ranks with the same layers, and nothing when scales come from
        the present amax."""
        if not self._delayed:
            return {}
        return {"history": self._history_HL2, "filled": self._filled_L2, "scale": self._scale_L2}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
        self._tell_layers()

    def _set_scales(self) -> None:
        warm_L2 = self._filled_L2 >= HISTORY_STEPS
        delayed_L2 = _scales(self._history_HL2.amax(0), self._scale_L2)
        self._scale_L2.copy_(torch.where(warm_L2, delayed_L2, 0.0))
        self._tell_layers()

    def _seen(self, layers: Roster | None) -> tuple[list[str], Tensor]:
        """Names and (2, L, 2): amaxes and scales of the last step."""
        numbers_AL2 = torch.stack((self._amax_L2, self._in_force_L2))
        return (self.names, numbers_AL2) if layers is None else (layers.names, layers.gather(numbers_AL2, 1))

    def _tell_layers(self) -> None:
        if self.names:
            torch._foreach_copy_(self._scales, self._scale_L2.flatten().unbind())


def _scales(amax_L2: Tensor, previous_L2: Tensor | None = None) -> Tensor:
    inputs, gradients = (None, None) if previous_L2 is None else previous_L2.unbind(1)
    return torch.stack(
        (scale_for(amax_L2[:, 0], E4M3, inputs), scale_for(amax_L2[:, 1], E5M2, gradients)), dim=1
    )
