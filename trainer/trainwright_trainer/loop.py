"""The training loop: for each step, learn from its batch, tell what was measured, and now and then validate and save.

There is one such loop for everything that is trained. What differs between trainings is in the parts it is given.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.events import Finished, Note, Step, Validation
from trainwright.contracts.job_spec import Outcome
from trainwright.contracts.precision_spec import PrecisionKind, PrecisionSpec
from trainwright_trainer.build import Training
from trainwright_trainer.checkpoint.snapshot import position, take_snapshot
from trainwright_trainer.data.loader import read_batches
from trainwright_trainer.ends import DivergedError
from trainwright_trainer.engine import Asked, StepNumbers, nobody_asks
from trainwright_trainer.garbage import collect_at, collected_together
from trainwright_trainer.observe.events import now
from trainwright_trainer.observe.memory import memory_bytes
from trainwright_trainer.observe.ranks import rank_seconds
from trainwright_trainer.observe.throughput import StepClock
from trainwright_trainer.optim.schedule import learning_rate_at
from trainwright_trainer.seeds import seed_step

_LOGGED_EVERY_STEPS = 10
_SPOILT = "; released gradients had moved weights by then, so go on from the last checkpoint"


def train(training: Training, asked: Asked = nobody_asks) -> Outcome:
    """Train to the last step, which ends with a checkpoint, or to the step after which ``asked`` was heard, likewise.

    Where it is heard before the first step there is nothing to save.

    Raises:
        DivergedError: a step's loss or gradient norm is not finite, and no more steps may be skipped. The state is that
            of the step before, but where gradients are released it is spoilt, as the message says, and only
            checkpoints are of use.
    """
    spec = training.spec
    last = spec.schedule.steps
    clock = StepClock(training.mesh.device)
    if not training.validation.sequences:
        training.report(
            Note(
                time=now(),
                message="Validation is not measured: its split holds less than one sequence of "
                f"{spec.batch.sequence_tokens:,} tokens. Raise data.validation_fraction.",
            )
        )
    leaving = _heard_at_once(training, asked)
    try:
        with collected_together():
            for step in range(training.step + 1, last + 1):
                if leaving:
                    break
                leaving = _learn(training, clock, step, asked)
                if step == last or step % spec.validation.every_steps == 0:
                    _validate(training, step)
                if leaving or step == last or step % spec.checkpoint.every_steps == 0:
                    _save(training, step)
                training.saver.check()
                collect_at(step)
    except DivergedError as error:
        # A planned end, which all ranks come to: the checkpoint that is being written is from before it.
        training.saver.wait()
        if _releases_gradients(spec.precision):
            raise DivergedError(f"{error}{_SPOILT}") from error
        raise
    training.saver.wait()
    if training.step < last:
        message = f"Saved its state after step {training.step:,} and left, as asked."
        return Outcome(code=EndCode.SAVED, message=message, step=training.step)
    training.report(Finished(time=now(), step=last))
    return Outcome(code=EndCode.FINISHED, message="Training reached its last step.", step=last)


def _heard_at_once(training: Training, asked: Asked) -> bool:
    """Whether the ranks are to leave before they begin."""
    asking = torch.tensor(float(asked()), device=training.mesh.device)
    return bool(training.mesh.world.sum(asking) > 0)


def _learn(training: Training, clock: StepClock, step: int, asked: Asked = nobody_asks) -> bool:
    """Make one step and tell of it; returns whether the ranks are to leave after it."""
    spec = training.spec
    clock.start()
    seed_step(spec.seed, step, training.mesh.rank, training.mesh.device)
    learning_rate = learning_rate_at(step, spec.optimizer.learning_rate, spec.schedule)
    numbers = training.engine.step(training.loader.micro_batches(step), learning_rate, clock, asked)
    training.skips.count(numbers)
    training.step = step
    if not numbers.finite:
        training.report(Note(time=now(), message=f"Step {step} was skipped: {numbers.complaint}."))
    values = {
        "learning_rate": learning_rate,
        "memory_bytes": float(memory_bytes(training.mesh.device)),
    }
    phases = clock.seconds()
    values |= _measured(training, step, numbers) | training.throughput.values(step, phases)
    values |= rank_seconds(training.mesh.world, step, phases)
    training.report(Step(time=now(), step=step, values=values))
    _log(step, numbers, values["tokens_per_second"])
    return numbers.leaving


def _measured(training: Training, step: int, numbers: StepNumbers) -> dict[str, float]:
    """What the step itself gave. Numbers that are not finite are left out: JSON does not know them."""
    values = {}
    if numbers.finite:
        values = {"loss": numbers.loss, "grad_norm": numbers.grad_norm}
        values |= training.engine.updater.numbers(step)
    if training.spec.precision.kind is PrecisionKind.FP8:
        values["skipped_steps"] = float(training.skips.total)
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _releases_gradients(precision: PrecisionSpec) -> bool:
    return precision.fp8 is not None and precision.fp8.release_gradients


def _log(step: int, numbers: StepNumbers, tokens_per_second: float) -> None:
    if not numbers.finite:
        print(f"step {step}  skipped: {numbers.complaint}", flush=True)
    elif step % _LOGGED_EVERY_STEPS == 0 or step == 1:
        print(f"step {step}  loss {numbers.loss:.4f}  {tokens_per_second:,.0f} tokens/s", flush=True)


def _validate(training: Training, step: int) -> None:
    """Measure the loss on the first sequences of the validation split, the same ones every time."""
    count = min(training.spec.validation.sequences, training.validation.sequences)
    if not count:
        return
    mine = np.arange(training.mesh.data.rank, count, training.mesh.data.ranks, dtype=np.uint64)
    batches = read_batches(training.validation, mine, training.spec.batch.micro_sequences)
    loss = training.engine.mean_loss(batches)
    training.report(Validation(time=now(), step=step, values={"validation_loss": loss}))


def _save(training: Training, step: int) -> None:
    """Begin to write a checkpoint, each rank what it answers for."""
    updater, saver = training.engine.updater, training.saver
    where = position(step, training.spec, training.begun) | training.skips.position()
    saver.save(lambda: take_snapshot(updater, where, saver.memory))
