"""The amaxes of the FP8 layers, and the scales that follow from them.

Each layer has two tensors that are known only when they are computed: its input and the gradient of its
output. Their scale comes from the current amax, or from the largest of the last 16 steps, which is known in
advance and so saves a pass over the tensor (delayed scaling: Micikevicius et al. 2022, arXiv 2209.05433).
Rules of delayed scaling:

    the first 16 steps          current amax
    amax not finite             dropped; the tensor's 16 steps start again
    all of the 16 steps zero    the scale stays; current amax if there was none

An amax that is not finite is an overflow that a cast does not show, because it clamps values; ``finite`` reports it.

    L layers, in the order of the forward pass   2 input, gradient of the output   H = 16 steps of history

The values of all layers are stacked once a step; the host waits only for values that it reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from trainwright.contracts.precision_spec import AmaxKind
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.parameter_index import ParameterIndex
from trainwright_trainer.fp8.compute.formats import E4M3, E5M2, LARGEST, scale_for

HISTORY_STEPS = 16

_SIDES = ("input", "output_gradient")


class LayerScaling(NamedTuple):
    """Where one layer writes its amaxes and reads its scales: scalars, float32."""

    input_amax: Tensor
    input_scale: Tensor
    output_gradient_probe: Tensor
    """A leaf whose gradient is the amax."""

    output_gradient_scale: Tensor


class AmaxHistory:
    """The amaxes and scales of all FP8 layers of a model.

    A step is: ``end_micro_batch`` after each backward pass, then ``end_step``, or ``skip_step`` if its update
    is skipped.
    """

    def __init__(
        self,
        taps: Mapping[str, LayerScaling],
        amax: AmaxKind,
        device: torch.device | None = None,
        gradient_format: torch.dtype = E5M2,
    ) -> None:
        """
        Args:
            device: required if there may be no layers: a pipeline stage may have none in FP8.
            gradient_format: that of output gradients (``casting.gradient_format``).
        """
        self.names = list(taps)
        self._formats = (E4M3, gradient_format)
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

    def end_micro_batch(self) -> None:
        """A backward pass has ended."""
        torch.maximum(self._gradients_L, self._round_L, out=self._gradients_L)
        self._round_L.zero_()
        self._collected = False

    def collect(self, ranks: Axis) -> None:
        """Collect the step's amaxes: maxima over ``ranks``, which have the same layers. Another call changes
        nothing.
        """
        if self._collected or not self.names:
            return
        self._collected = True
        self._amax_L2.copy_(
            ranks.all_reduce_max(torch.stack((torch.stack(self._inputs), self._gradients_L), dim=1))
        )
        present_L2 = self._scales_of(self._amax_L2)
        self._in_force_L2.copy_(torch.where(self._scale_L2 > 0, self._scale_L2, present_L2))
        torch._foreach_zero_(self._inputs)
        self._gradients_L.zero_()

    def finite(self) -> Tensor:
        """() bool, on the device: whether all amaxes of the collected step are finite."""
        return torch.isfinite(self._amax_L2).all()

    def end_step(self, ranks: Axis) -> None:
        """The step counts: its amaxes enter the history, and the next scales follow."""
        self.collect(ranks)
        if not self._delayed:
            return
        finite_L2 = torch.isfinite(self._amax_L2)
        newest_L2 = torch.where(finite_L2, self._amax_L2, 0.0)
        self._history_HL2.copy_(torch.cat((newest_L2[None], self._history_HL2[:-1])))
        self._filled_L2.copy_(torch.where(finite_L2, (self._filled_L2 + 1).clamp(max=HISTORY_STEPS), 0))
        self._set_scales()

    def skip_step(self, ranks: Axis) -> None:
        """The step is skipped: none of its amaxes are recorded, and the history of those that were not finite
        starts again.
        """
        self.collect(ranks)
        if not self._delayed:
            return
        self._filled_L2.mul_(torch.isfinite(self._amax_L2))
        self._set_scales()

    def saturated(self, layers: ParameterIndex | None = None) -> Tensor:
        """() float32: fraction of all layers' inputs and output gradients that were clamped in the last step.

        With the current amax nothing is clamped; a delayed scale may be too small for a tensor that grew.

        Args:
            layers: those of the entire model, all of whose ranks then call this; by default those on this
                rank.
        """
        _, (amax_L2, in_force_L2) = self._stacked(layers)
        largest_2 = amax_L2.new_tensor([LARGEST[format] for format in self._formats])
        clamped_L2: Tensor = amax_L2 > largest_2 * in_force_L2
        return clamped_L2.float().mean()

    def observed(self, layers: ParameterIndex | None = None) -> dict[str, tuple[float, float]]:
        """Amax and scale of each tensor in the last step, `<weight>:input` and `<weight>:output_gradient`."""
        names, numbers_AL2 = self._stacked(layers)
        return {
            f"{name}:{side}": (pair[0], pair[1])
            for name, sides in zip(names, numbers_AL2.movedim(0, 2).tolist(), strict=True)
            for side, pair in zip(_SIDES, sides, strict=True)
        }

    def state(self) -> dict[str, Tensor]:
        """The state that the next step depends on, (…, L, 2): equal on ranks with the same layers, and empty
        if scales come from the current amax."""
        if not self._delayed:
            return {}
        return {"history": self._history_HL2, "filled": self._filled_L2, "scale": self._scale_L2}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
        self._update_layers()

    def _set_scales(self) -> None:
        warm_L2 = self._filled_L2 >= HISTORY_STEPS
        delayed_L2 = self._scales_of(self._history_HL2.amax(0), self._scale_L2)
        self._scale_L2.copy_(torch.where(warm_L2, delayed_L2, 0.0))
        self._update_layers()

    def _stacked(self, layers: ParameterIndex | None) -> tuple[list[str], Tensor]:
        """Names and (2, L, 2): amaxes and scales of the last step."""
        numbers_AL2 = torch.stack((self._amax_L2, self._in_force_L2))
        return (
            (self.names, numbers_AL2) if layers is None else (layers.names, layers.all_gather(numbers_AL2, 1))
        )

    def _scales_of(self, amax_L2: Tensor, previous_L2: Tensor | None = None) -> Tensor:
        previous = (None, None) if previous_L2 is None else previous_L2.unbind(1)
        sides = zip(amax_L2.unbind(1), self._formats, previous, strict=True)
        return torch.stack([scale_for(amax_L, format, before_L) for amax_L, format, before_L in sides], dim=1)

    def _update_layers(self) -> None:
        if self.names:
            torch._foreach_copy_(self._scales, self._scale_L2.flatten().unbind())
