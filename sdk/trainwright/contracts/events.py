"""Lines of ``events.jsonl``, the only channel by which a trainer reports what happened.

Rank 0 writes one JSON object per line and flushes complete lines; readers drop an incomplete last line. ``step`` and
``validation`` lines carry metrics, which become series (`trainwright.contracts.series`). ``samples`` lines become the run's
samples. All other lines become events for users.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, TypeAdapter

from trainwright.contracts.base import Envelope


class Line(Envelope):
    """Fields that all lines share."""

    time: AwareDatetime


class AttemptStarted(Line):
    type: Literal["attempt_started"] = "attempt_started"
    attempt: int
    resume_step: int
    """Step of the checkpoint that was loaded; 0 for a start from scratch. Metrics after it are discarded."""

    ranks: int
    parameters: int
    device: str
    """Name of the device, as reported by its driver."""

    peak_name: str | None = None
    """What MFU is a fraction of, such as `BF16 peak 989 TFLOP/s of NVIDIA H200`; empty: no MFU is shown."""

    bf16_peak_name: str | None = None
    """What ``bf16_mfu`` is a fraction of, in an FP8 run."""


class Step(Line):
    """Metrics of one optimizer step (``step`` counts from 1)."""

    type: Literal["step"] = "step"
    step: int
    values: dict[str, float]


class Validation(Line):
    """Metrics measured after ``step`` on the validation split."""

    type: Literal["validation"] = "validation"
    step: int
    values: dict[str, float]


MAX_SAMPLE_LENGTH = 4_000
"""Characters of a sample's text."""


class Sample(Envelope):
    """Text that the model generated from a prompt."""

    prompt: str
    text: str
    """The continuation, without the prompt."""


class Samples(Line):
    """Continuations of the spec's prompts, generated with the weights after ``step``."""

    type: Literal["samples"] = "samples"
    step: int
    samples: list[Sample]


class CheckpointSaved(Line):
    """The folder of a checkpoint is complete. Flushed after the lines of all earlier steps."""

    type: Literal["checkpoint_saved"] = "checkpoint_saved"
    step: int
    folder: str
    """Name of the folder under ``checkpoints/``."""

    digest: str
    """SHA-256 of its manifest."""

    bytes: int
    seconds: float


class Note(Line):
    """Information for users that has no effect by itself."""

    type: Literal["note"] = "note"
    message: str


class Finished(Line):
    """Training reached its last step and its checkpoint is complete."""

    type: Literal["finished"] = "finished"
    step: int


TrainerEvent = Annotated[
    AttemptStarted | Step | Validation | Samples | CheckpointSaved | Note | Finished,
    Field(discriminator="type"),
]
TRAINER_EVENT: TypeAdapter[TrainerEvent] = TypeAdapter(TrainerEvent)
