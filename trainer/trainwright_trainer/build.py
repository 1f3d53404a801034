"""The one place where a training is put together from a job: every choice between parts is made here.

Each part takes its own section of the spec; only this file sees the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from trainwright.contracts.checkpoint import CheckpointManifest
from trainwright.contracts.events import AttemptStarted, CheckpointSaved, Note
from trainwright.contracts.job_spec import (
    CHECKPOINTS_FOLDER,
    DATA_FOLDER,
    EVENTS_NAME,
    RESUME_FOLDER,
    JobSpec,
    output_folder,
)
from trainwright.contracts.parallelism_spec import EngineKind
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.shards import ShardManifest
from trainwright.planner.compiling import compiles, left_uncompiled
from trainwright.planner.flops import count_parameters, flops_per_token, recomputed_flops_per_token
from trainwright_trainer.checkpoint.load import check_fits, place_in_data, read_checkpoint, restore, verifying
from trainwright_trainer.checkpoint.save import Origin, Saved, Saver, join_writers
from trainwright_trainer.checkpoint.snapshot import config_digest
from trainwright_trainer.compiled import can_compile, compile_gradient, compile_model
from trainwright_trainer.data.begun import START, Begun
from trainwright_trainer.data.loader import Loader
from trainwright_trainer.data.shards import TokenStream, read_manifest
from trainwright_trainer.ends import BadJobError, CheckpointInvalidError
from trainwright_trainer.engine import Engine, TorchEngine
from trainwright_trainer.fp8.updater import FP8Updater
from trainwright_trainer.held_model import change_modules, empty_model, hold
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.model.loss import HeadLoss, chunk_gradient, head_loss
from trainwright_trainer.model.residual import carry_in
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.events import EventWriter, Report, drop, now
from trainwright_trainer.observe.memory import device_name, forget_peak
from trainwright_trainer.observe.throughput import Throughput
from trainwright_trainer.parallel.data.slices import is_sliced, loss_of_sliced
from trainwright_trainer.parallel.pipeline.stages import Stages, resolve_stages
from trainwright_trainer.parallel.tensor.vocabulary import cut_chunk_gradient, cut_head_loss
from trainwright_trainer.parts import Parts
from trainwright_trainer.passes import Passes, Rounds
from trainwright_trainer.skips import Skips, skip_limit
from trainwright_trainer.updater import Updater


@dataclass
class Training:
    """All parts of a training, and the step that it stands at."""

    spec: RunSpec
    mesh: Mesh
    engine: Engine
    loader: Loader
    validation: TokenStream
    saver: Saver
    report: Report
    throughput: Throughput
    skips: Skips
    begun: Begun
    """Where this attempt began."""

    step: int
    """Last step made or skipped."""


def build(job: JobSpec, job_file: Path, mesh: Mesh) -> Training:
    """Assemble the training of ``job`` on this rank and report that its attempt has started.

    Raises:
        BadJobError: job, data and configuration do not fit together.
        CheckpointInvalidError: the checkpoint to resume from must not be used.
    """
    spec, folder = job.spec, job_file.parent
    train, validation = _open_data(job, folder / DATA_FOLDER)
    stages = resolve_stages(spec, mesh)
    model, parts, updater, skips, begun = _build_state(job, folder / RESUME_FOLDER, mesh, stages)
    report = EventWriter(output_folder(job_file) / EVENTS_NAME).write if mesh.rank == 0 else drop
    report(_started(job, mesh, begun.step))
    for remark in _remarks(updater, stages, left_uncompiled(spec, mesh.device.type == "cuda")):
        report(Note(time=now(), message=remark))
    forget_peak(mesh.device)  # building may have needed more than a step does
    loss = _arrange(model, spec, mesh)
    if is_sliced(model):
        loss = loss_of_sliced(model, loss)
    return Training(
        spec=spec,
        mesh=mesh,
        engine=_engine(model, parts, updater, spec, mesh, stages, loss),
        loader=Loader(train, spec.batch, spec.seed, mesh.data.rank, mesh.data.ranks, begun),
        validation=validation,
        saver=Saver(
            output_folder(job_file) / CHECKPOINTS_FOLDER, _origin(job), join_writers(mesh), _reporting(report)
        ),
        report=report,
        throughput=_throughput(job, begun),
        skips=skips,
        begun=begun,
        step=begun.step,
    )


def _engine(
    model: Transformer,
    parts: Parts,
    updater: Updater,
    spec: RunSpec,
    mesh: Mesh,
    stages: Stages | None,
    loss: HeadLoss,
) -> Engine:
    if spec.parallelism.engine is EngineKind.DEEPSPEED:
        from trainwright_trainer.deepspeed_engine import DeepSpeedEngine, DeepSpeedUpdater

        assert isinstance(updater, DeepSpeedUpdater)
        return DeepSpeedEngine(model, updater, mesh, spec.accumulation_rounds, loss)
    return TorchEngine(model, updater, mesh, _passes(model, parts, updater, spec, mesh, stages, loss))


def _passes(
    model: Transformer,
    parts: Parts,
    updater: Updater,
    spec: RunSpec,
    mesh: Mesh,
    stages: Stages | None,
    loss: HeadLoss,
) -> Passes:
    kind, rounds = spec.precision.kind, spec.accumulation_rounds
    if stages is None:
        return Rounds(model, updater, mesh, kind, rounds, loss, mesh.data if is_sliced(model) else None)
    # torch's part of it takes a second to import
    from trainwright_trainer.parallel.pipeline.passes import PipelinePasses
    from trainwright_trainer.parallel.pipeline.schedules import Flow

    batch = spec.batch
    flow = Flow(batch.micro_sequences, batch.sequence_tokens, spec.model.width, kind, mesh.tensor.ranks)
    return PipelinePasses(model, parts, updater, mesh, stages, flow, rounds, loss)


def _arrange(model: Transformer, spec: RunSpec, mesh: Mesh) -> HeadLoss:
    """Make the passes over ``model`` that trade memory, time and rounding; returns the loss that goes with them."""
    if not is_sliced(model):
        change_modules(model, spec, mesh)
    if spec.precision.kind is PrecisionKind.BF16:
        carry_in(model, torch.bfloat16)
    wanted = compiles(spec, mesh.device.type == "cuda")
    compiled = wanted and can_compile(spec.precision.compile, mesh.device)
    if compiled:
        compile_model(model)
    chunk_tokens = spec.memory.loss_chunk_tokens
    if mesh.tensor.ranks == 1:
        whole_gradient = compile_gradient(chunk_gradient) if compiled else chunk_gradient
        return partial(head_loss, chunk_tokens=chunk_tokens, gradient_of=whole_gradient)
    return partial(
        cut_head_loss,
        chunk_tokens=chunk_tokens,
        vocabulary=spec.data.tokenizer.size,
        axis=mesh.tensor,
        gradient_of=compile_gradient(cut_chunk_gradient) if compiled else cut_chunk_gradient,
    )


def _flops_per_token(spec: RunSpec) -> int:
    return flops_per_token(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)


def _build_state(
    job: JobSpec, resume: Path, mesh: Mesh, stages: Stages | None
) -> tuple[Transformer, Parts, Updater, Skips, Begun]:
    """Model and who holds its weights, fresh or from the checkpoint, and where they stand."""
    spec = job.spec
    model, parts = empty_model(spec, mesh, stages)
    skips = Skips(skip_limit(spec.precision))
    if job.resume is None:
        held, updater = hold(model, parts, spec, mesh, fresh=True)
        return held, parts, updater, skips, START
    wanted = None if job.resume.forked else config_digest(spec)
    manifest = read_checkpoint(resume, wanted, job.resume.digest)
    with verifying(resume, manifest, mesh):
        held, updater = hold(model, parts, spec, mesh, fresh=False)
        if job.resume.forked:
            _refuse_misfit(resume, manifest, updater)
        restore(resume, manifest, updater)
        skips.restore(manifest.state)
    begun = place_in_data(resume, manifest)
    return held, parts, updater, skips, replace(begun, sequences=0) if job.resume.data_from_start else begun


def _refuse_misfit(resume: Path, manifest: CheckpointManifest, updater: Updater) -> None:
    """Another run's checkpoint may be sound and yet not fit: that is the configuration's fault.

    Raises:
        BadJobError: naming the first tensor that differs.
    """
    try:
        check_fits(resume, manifest, updater)
    except CheckpointInvalidError as error:
        raise BadJobError(f"the checkpoint that this run is forked from does not fit it: {error}") from error


def _open_data(job: JobSpec, folder: Path) -> tuple[TokenStream, TokenStream]:
    """The training and the validation split, checked against the spec."""
    spec = job.spec
    if job.ranks != spec.resources.ranks:
        raise BadJobError(f"slots: {job.ranks} are given, but spec.resources asks for {spec.resources.ranks}")
    try:
        manifest = read_manifest(folder)
        _check_tokenizer(manifest, spec)
        length = spec.batch.sequence_tokens
        train = TokenStream(folder, manifest.train, manifest.token_type, length)
        if not train.sequences:
            raise ValueError(
                f"the training split has {manifest.train.tokens} tokens, too few for one sequence"
            )
        return train, TokenStream(folder, manifest.validation, manifest.token_type, length)
    except (ValueError, FileNotFoundError) as error:
        raise BadJobError(f"data: {error}") from error


def _check_tokenizer(manifest: ShardManifest, spec: RunSpec) -> None:
    wanted = spec.data.tokenizer
    if (manifest.tokenizer.kind, manifest.tokenizer.size) != (wanted.kind, wanted.size):
        raise BadJobError(
            f"spec.data.tokenizer: {wanted.kind} with {wanted.size} tokens is asked for, "
            f"the data has {manifest.tokenizer.kind} with {manifest.tokenizer.size}"
        )


def _started(job: JobSpec, mesh: Mesh, step: int) -> AttemptStarted:
    return AttemptStarted(
        time=now(),
        attempt=job.attempt,
        resume_step=step,
        ranks=mesh.ranks,
        parameters=count_parameters(job.spec.model, job.spec.data.tokenizer.size).total,
        device=device_name(mesh.device),
        peak_name=job.peak.name if job.peak else None,
        bf16_peak_name=job.bf16_peak.name if job.bf16_peak else None,
    )


def _remarks(updater: Updater, stages: Stages | None, uncompiled: str | None) -> Iterator[str]:
    """What a person should know of how the model was cut, what that forbids, and how the state was taken over."""
    if stages is not None and stages.remark:
        yield stages.remark
    if uncompiled is not None:
        yield f"Blocks are not compiled: {uncompiled}."
    if isinstance(updater, FP8Updater) and updater.rounded_anew:
        yield (
            f"{updater.rounded_anew} tensors were rounded anew, because this layout cuts blocks of 128 that share a scale"
        )


def _origin(job: JobSpec) -> Origin:
    return Origin(config_digest(job.spec), job.ranks, job.resume.digest if job.resume else None)


def _throughput(job: JobSpec, begun: Begun) -> Throughput:
    spec = job.spec
    return Throughput(
        steps=spec.schedule.steps,
        tokens_per_step=spec.tokens_per_step,
        tokens_before=begun.tokens_after(0, spec.tokens_per_step),
        flops_per_token=_flops_per_token(spec),
        recomputed_flops_per_token=recomputed_flops_per_token(
            spec.model, spec.memory, spec.batch.sequence_tokens
        ),
        ranks=job.ranks,
        peak=job.peak,
        bf16_peak=job.bf16_peak,
    )


def _reporting(report: Report) -> Callable[[Saved], None]:
    def when_saved(saved: Saved) -> None:
        report(
            CheckpointSaved(
                time=now(),
                step=saved.step,
                folder=saved.folder.name,
                digest=saved.digest,
                bytes=saved.bytes,
                seconds=saved.seconds,
            )
        )

    return when_saved
