"""Lines of ``events.jsonl``, the one channel by which a trainer tells what happened.

Rank 0 writes one JSON object a line and flushes it whole; a torn last line is dropped by readers. ``step`` and
``validation`` lines carry numbers, which become series; the others become events that people read.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, TypeAdapter

from trainwright.contracts.base import Envelope

SERIES_UNITS: dict[str, str] = {
    "loss": "nats/token",
    "validation_loss": "nats/token",
    "grad_norm": "",
    "learning_rate": "",
    "tokens": "tokens",
    "tokens_per_second": "tokens/s",
    "mfu": "fraction",
    "bf16_mfu": "fraction",
    "hfu": "fraction",
    "memory_bytes": "bytes",
    "eta_seconds": "s",
    "seconds": "s",
    "data_seconds": "s",
    "forward_seconds": "s",
    "backward_seconds": "s",
    "collectives_seconds": "s",
    "optimizer_seconds": "s",
    "skipped_steps": "steps",
    "fp8_saturated": "fraction",
    "fp8_flushed": "fraction",
    "fp8_lost_updates": "fraction",
    "fp8_smallest_headroom": "",
}
"""Series that every trainer writes, with their units. ``tokens`` counts all seen since step 0; ``seconds`` is the
time of one step and the ``…_seconds`` of phases sum to it; ``mfu`` is missing where the device's peak is unknown,
and ``bf16_mfu`` (against the BF16 peak) is there in FP8 runs only. ``hfu`` counts FLOPs of recomputed activations too: it is
there with ``mfu``, against the same peak, and equal to it where nothing is recomputed.

FP8 runs add ``skipped_steps`` (all since step 0), and every few steps: of the inputs and output gradients of all FP8 layers
the fraction that were clamped, their largest value being beyond their scale (``fp8_saturated``; 0 where scales come
from the present maximum); of all gradients' values the fraction that became zero (``fp8_flushed``); of the weights that
should have moved the fraction that did not, for rounding (``fp8_lost_updates``); and the smallest headroom factor μ of
a gradient."""

LAYER_SERIES = ("fp8_amax", "fp8_scale")
"""Series of single tensors, ``fp8_amax/<tensor>`` and ``fp8_scale/<tensor>``: the largest absolute value, and the
number that multiplies stored values to get real ones. A tensor is a weight's canonical name with ``:weight``,
``:gradient``, ``:input`` or ``:output_gradient`` behind it."""


RANK_SERIES = "rank_seconds"
"""Series of single ranks, ``rank_seconds/<rank>:<phase>``: seconds of a phase of one step, where there are several ranks."""


class Line(Envelope):
    """What all lines share."""

    time: AwareDatetime


class AttemptStarted(Line):
    type: Literal["attempt_started"] = "attempt_started"
    attempt: int
    resume_step: int
    """Step of the checkpoint really loaded; 0 for a fresh start. Metrics after it are discarded."""

    ranks: int
    parameters: int
    device: str
    """Name of the device, as its driver gives it."""

    peak_name: str | None = None
    """What MFU is a fraction of, such as `BF16 peak 989 TFLOP/s of NVIDIA H200`; empty: no MFU is shown."""

    bf16_peak_name: str | None = None
    """In an FP8 run, what ``bf16_mfu`` is a fraction of."""


class Step(Line):
    """Numbers of one optimizer step (``step`` counts from 1)."""

    type: Literal["step"] = "step"
    step: int
    values: dict[str, float]


class Validation(Line):
    """Numbers measured after ``step`` on the validation split."""

    type: Literal["validation"] = "validation"
    step: int
    values: dict[str, float]


class CheckpointSaved(Line):
    """A checkpoint's folder is complete. Flushed after the lines of all steps before it."""

    type: Literal["checkpoint_saved"] = "checkpoint_saved"
    step: int
    folder: str
    """Name of the folder under ``checkpoints/``."""

    digest: str
    """SHA-256 of its manifest."""

    bytes: int
    seconds: float


class Note(Line):
    """Something worth a person's eye that changes nothing by itself."""

    type: Literal["note"] = "note"
    message: str


class Finished(Line):
    """Training reached its last step and its checkpoint is complete."""

    type: Literal["finished"] = "finished"
    step: int


TrainerEvent = Annotated[
    AttemptStarted | Step | Validation | CheckpointSaved | Note | Finished, Field(discriminator="type")
]
TRAINER_EVENT: TypeAdapter[TrainerEvent] = TypeAdapter(TrainerEvent)
