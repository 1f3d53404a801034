"""The training loop: for each step, train on its batch and report what was measured; periodically validate and save.

Every training uses this loop. Differences between trainings are in the components of ``Training``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.events import Finished, Note, Samples, Step, Validation
from trainwright.contracts.job_spec import Outcome
from trainwright.contracts.parallelism_spec import EngineKind
from trainwright.contracts.precision_spec import PrecisionKind, PrecisionSpec
from trainwright.contracts.rank_progress import RankActivity
from trainwright.contracts.series import STRAGGLER_SERIES
from trainwright_trainer.checkpoint.snapshot import take_snapshot, training_position
from trainwright_trainer.data.loader import read_batches
from trainwright_trainer.distributed.progress_counters import counted
from trainwright_trainer.observe.events import now
from trainwright_trainer.observe.memory import memory_bytes
from trainwright_trainer.observe.rank_timings import EVERY_STEPS, rank_seconds
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.observe.stragglers import WINDOW
from trainwright_trainer.optim.learning_rate import learning_rate_at
from trainwright_trainer.runtime.errors import DivergedError
from trainwright_trainer.runtime.garbage_collection import collect_after_step, synchronized_collection
from trainwright_trainer.runtime.seeds import seed_step
from trainwright_trainer.training.build import Training
from trainwright_trainer.training.engine import ShouldStop, StepMetrics, never_stop

_LOGGED_EVERY_STEPS = 10
_SPOILED_STATE = "; weights had already been updated in the backward pass, so resume from the last checkpoint"


def train(training: Training, should_stop: ShouldStop = never_stop) -> Outcome:
    """Train to the last step, or to the first step at which a rank's ``should_stop`` is true; both end with a
    checkpoint.

    If the stop was requested before the first step, there is nothing to save.

    Raises:
        DivergedError: a step's loss or gradient norm is not finite, twice, and as many steps as allowed were
            skipped already. The state is that of the step before. With the optimizer in the backward
            pass it is unusable, as the message says, and only checkpoints can be used.
    """
    spec = training.spec
    last = spec.schedule.steps
    timer = StepTimer(training.mesh.device, training.mesh.progress)
    if not training.validation.sequences:
        training.report(
            Note(
                time=now(),
                message="There is no validation: its split is shorter than one sequence of "
                f"{spec.batch.sequence_tokens:,} tokens. Raise data.validation_fraction.",
            )
        )
    stopping = _stop_requested_before_start(training, should_stop)
    if training.mesh.device.type == "cuda" and spec.parallelism.engine is EngineKind.NATIVE and not stopping:
        # Pinning takes seconds. It runs while the first steps compile, so that the first checkpoint does not wait for it.
        training.saver.reserve([stored.tensor for stored in training.engine.updater.state()])
    try:
        with synchronized_collection():
            for step in range(training.step + 1, last + 1):
                if stopping:
                    break
                stopping = run_step(training, timer, step, should_stop)
                if step == last or step % spec.validation.every_steps == 0:
                    validate(training, step)
                    _write_samples(training, step)
                    timer.interrupt()
                if stopping or step == last or step % spec.checkpoint.every_steps == 0:
                    _save(training, step)
                    timer.interrupt()
                training.saver.check()
                collect_after_step(step)
    except DivergedError as error:
        # A planned end, which all ranks reach: the checkpoint being written is from before it.
        training.mesh.progress.set_activity(RankActivity.SAVING)
        training.saver.wait()
        if _updates_in_backward(spec.precision):
            raise DivergedError(f"{error}{_SPOILED_STATE}", error.cause) from error
        raise
    training.mesh.progress.set_activity(RankActivity.SAVING)
    training.saver.wait()
    if training.step < last:
        message = f"Saved the state after step {training.step:,} and stopped, as requested."
        return Outcome(code=EndCode.SAVED, message=message, step=training.step)
    training.report(Finished(time=now(), step=last))
    return Outcome(code=EndCode.FINISHED, message="Training reached its last step.", step=last)


def _stop_requested_before_start(training: Training, should_stop: ShouldStop) -> bool:
    """Whether the ranks should stop before they start."""
    asking = torch.tensor(float(should_stop()), device=training.mesh.device)
    return bool(training.mesh.world.all_reduce(asking) > 0)


def run_step(training: Training, timer: StepTimer, step: int, should_stop: ShouldStop = never_stop) -> bool:
    """Make one step and report it; returns whether the ranks should stop after it."""
    spec = training.spec
    training.mesh.progress.begin_step(step)
    timer.start()
    learning_rate = learning_rate_at(step, spec.optimizer.learning_rate, spec.schedule)
    metrics = _compute_step(training, timer, step, learning_rate, should_stop)
    training.skipped_steps.record(metrics)
    training.step = step
    if metrics.finite:
        _report_spike(training, step, metrics.loss)
    else:
        training.engine.updater.skip()
        training.report(Note(time=now(), message=f"Step {step} was skipped: {metrics.problem}."))
    values = {
        "learning_rate": learning_rate,
        "memory_bytes": float(memory_bytes(training.mesh.device)),
    }
    timings = timer.seconds()
    values |= _step_values(training, step, metrics) | training.throughput.values(step, timings)
    of_ranks = rank_seconds(training.mesh.world, step, timings)
    values |= of_ranks | _straggler_scores(training, step, of_ranks)
    training.report(Step(time=now(), step=step, values=values))
    _log(step, training.spec.schedule.steps, metrics, values["tokens_per_second"])
    return metrics.stopping


def _compute_step(
    training: Training, timer: StepTimer, step: int, learning_rate: float, should_stop: ShouldStop
) -> StepMetrics:
    """Make one step. If its result is not finite, compute it once more with the same data and random numbers: an error
    of the hardware does not repeat, and the run then continues as if it had not happened."""

    def compute() -> StepMetrics:
        seed_step(training.spec.seed, step, training.mesh.rank, training.mesh.device)
        micro_batches = training.loader.micro_batches(step)
        return training.engine.step(micro_batches, learning_rate, timer, should_stop)

    first = compute()
    if first.finite or _updates_in_backward(training.spec.precision):
        return first
    second = compute()._replace(repeated=True)
    if second.finite:
        message = (
            f"Step {step} was computed again: {first.problem}, and not when the same batch was repeated. "
            "The hardware may be faulty: test the run's nodes."
        )
        training.report(Note(time=now(), message=message))
    return second._replace(stopping=first.stopping or second.stopping)


def _report_spike(training: Training, step: int, loss: float) -> None:
    spike = training.loss_spikes.observe(loss)
    if spike is not None:
        training.report(Note(time=now(), message=f"Step {step}: {spike}."))


def _straggler_scores(training: Training, step: int, of_ranks: Mapping[str, float]) -> dict[str, float]:
    """The series of all ranks' scores, if this step measured their times; reports ranks that have become slow."""
    if not of_ranks:
        return {}
    scores = training.stragglers.observe(of_ranks)
    for rank, score in training.stragglers.new_ones(scores):
        on_node = len(training.mesh.on_node)
        where = f" (node {rank // on_node + 1} of the run)" if on_node < training.mesh.ranks else ""
        message = (
            f"Step {step}: rank {rank}{where} has computed longer than the other ranks with the same layers for "
            f"{WINDOW * EVERY_STEPS} steps, by {score:.0%} of their time (the median of {WINDOW} measured steps; collectives do "
            "not count). The others wait for it: test its node."
        )
        training.report(Note(time=now(), message=message))
    return {f"{STRAGGLER_SERIES}/{rank}": score for rank, score in scores.items()}


def _step_values(training: Training, step: int, metrics: StepMetrics) -> dict[str, float]:
    """Metrics of the step itself. Values that are not finite are left out, because JSON cannot represent them."""
    values = {}
    if metrics.finite:
        values = {"loss": metrics.loss, "grad_norm": metrics.grad_norm}
        values |= training.engine.updater.metrics(step)
    if training.spec.precision.kind is PrecisionKind.FP8:
        values["skipped_steps"] = float(training.skipped_steps.total)
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _updates_in_backward(precision: PrecisionSpec) -> bool:
    return precision.fp8 is not None and precision.fp8.optimizer_in_backward


def _log(step: int, last: int, metrics: StepMetrics, tokens_per_second: float) -> None:
    aligned = f"{step:{len(str(last))}}"
    if not metrics.finite:
        print(f"step {aligned}  skipped: {metrics.problem}", flush=True)
    elif step % _LOGGED_EVERY_STEPS == 0 or step == 1:
        print(f"step {aligned}  loss {metrics.loss:.4f}  {tokens_per_second:,.0f} tokens/s", flush=True)


def validate(training: Training, step: int) -> None:
    """Measure the loss on the first sequences of the validation split, the same ones every time."""
    count = min(training.spec.validation.sequences, training.validation.sequences)
    if not count:
        return
    training.mesh.progress.set_activity(RankActivity.VALIDATION)
    mine = np.arange(training.mesh.data.rank, count, training.mesh.data.ranks, dtype=np.uint64)
    batches = read_batches(training.validation, mine, training.spec.batch.micro_sequences)
    loss = training.engine.mean_loss(counted(batches, training.mesh.progress))
    training.report(Validation(time=now(), step=step, values={"validation_loss": loss}))


def _write_samples(training: Training, step: int) -> None:
    if training.samples is not None:
        # ``validate`` does not set it if there are no validation sequences.
        training.mesh.progress.set_activity(RankActivity.VALIDATION)
        written = training.samples.write(training.engine, step)
        training.report(Samples(time=now(), step=step, samples=written))


def _save(training: Training, step: int) -> None:
    """Start writing a checkpoint; each rank writes its share."""
    training.mesh.progress.set_activity(RankActivity.SAVING)
    updater, saver = training.engine.updater, training.saver
    where = training_position(step, training.spec, training.data_position) | training.skipped_steps.scalars()
    saver.save(lambda: take_snapshot(updater, where, saver.memory))
