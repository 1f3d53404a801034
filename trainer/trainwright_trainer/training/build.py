"""Assembling a training from a job. Every choice between components is made here.

Each component takes its own section of the spec; only this file sees all of it.
"""

from __future__ import annotations

import os
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
from trainwright.contracts.rank_progress import AxisName, lines_along
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.token_shards import ShardManifest
from trainwright.planner.compilation import why_not_compiled
from trainwright.planner.flops import count_parameters, flops_per_token, recomputed_flops_per_token
from trainwright_trainer.checkpoint.load import (
    check_fits,
    data_position_of,
    read_checkpoint,
    restore,
    verifying,
)
from trainwright_trainer.checkpoint.save import Origin, SavedCheckpoint, Saver, join_writers
from trainwright_trainer.checkpoint.snapshot import config_digest
from trainwright_trainer.data.batch_ring import BATCHES_VARIABLE, BatchRing, ring_layout
from trainwright_trainer.data.loader import Loader
from trainwright_trainer.data.position import START, DataPosition
from trainwright_trainer.data.shared_batches import SharedBatches
from trainwright_trainer.data.token_shards import TokenStream, read_manifest
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.model.loss import HeadLoss, LossOptions, chunk_gradient, head_loss
from trainwright_trainer.model.next_token import HeadLogits, head_logits
from trainwright_trainer.observe.events import EventWriter, Report, ignore_event, now
from trainwright_trainer.observe.loss_spikes import LossSpikes
from trainwright_trainer.observe.memory import device_name, reset_peak_memory
from trainwright_trainer.observe.stragglers import Stragglers
from trainwright_trainer.observe.throughput import Throughput
from trainwright_trainer.optim.updater import Updater
from trainwright_trainer.parallel.data.fsdp import fsdp_head_loss, uses_fsdp
from trainwright_trainer.parallel.pipeline.stages import Stages, resolve_stages
from trainwright_trainer.parallel.tensor.vocab_parallel import (
    vocab_parallel_chunk_gradient,
    vocab_parallel_head_logits,
    vocab_parallel_head_loss,
)
from trainwright_trainer.runtime.attention_kernels import attention_kernel
from trainwright_trainer.runtime.compilation import compile_gradient
from trainwright_trainer.runtime.errors import BadJobError, CheckpointInvalidError
from trainwright_trainer.training.engine import Engine, TorchEngine
from trainwright_trainer.training.forward_backward import ForwardBackward, GradientAccumulation
from trainwright_trainer.training.materialize import materialize
from trainwright_trainer.training.model_passes import (
    ModelParts,
    build_parts,
    has_masks,
    is_masked_everywhere,
    uses_flex_attention,
)
from trainwright_trainer.training.samples import SampleWriter, sample_writer
from trainwright_trainer.training.skipped_steps import SkippedSteps, skip_limit


@dataclass
class Training:
    """All components of a training, and the step it is at."""

    spec: RunSpec
    mesh: Mesh
    engine: Engine
    loader: Loader
    validation: TokenStream
    samples: SampleWriter | None
    """Continues the spec's prompts; None if it has none."""

    saver: Saver
    report: Report
    throughput: Throughput
    skipped_steps: SkippedSteps
    loss_spikes: LossSpikes
    stragglers: Stragglers
    data_position: DataPosition
    """The data position at which this attempt started."""

    step: int
    """Last step made or skipped."""


def build(job: JobSpec, job_file: Path, mesh: Mesh) -> Training:
    """Assemble the training of ``job`` on this rank and report that its attempt has started.

    Raises:
        BadJobError: job, data and configuration do not fit together.
        CheckpointInvalidError: the checkpoint to resume from must not be used.
    """
    spec, folder = job.spec, job_file.parent
    train, validation, end_of_text = _open_data(job, folder / DATA_FOLDER)
    mesh.create_groups(beside_passes=spec.precision.fp8 is not None)
    stages = resolve_stages(spec, mesh)
    parts = build_parts(spec, mesh, stages, end_of_text)
    updater, skipped_steps, data_position = _initialize_or_resume(job, folder / RESUME_FOLDER, mesh, parts)
    report = EventWriter(output_folder(job_file) / EVENTS_NAME).write if mesh.leads_node else ignore_event
    report(_started(job, mesh, data_position.step))
    for note in _notes(updater, stages, why_not_compiled(spec, mesh.device.type == "cuda")):
        report(Note(time=now(), message=note))
    if mesh.device.type == "cuda":
        report(Note(time=now(), message=f"Attention is computed by {_attention_kernels(spec, mesh)}."))
    reset_peak_memory(mesh.device)  # building may have needed more memory than a step does
    return Training(
        spec=spec,
        mesh=mesh,
        engine=build_engine(parts, updater, spec, mesh, stages),
        loader=Loader(
            train,
            spec.batch,
            spec.seed,
            mesh.data.rank,
            mesh.data.ranks,
            data_position,
            _shared_batches(job, mesh, train, data_position),
        ),
        validation=validation,
        samples=sample_writer(spec, folder / DATA_FOLDER, mesh),
        saver=Saver(
            output_folder(job_file) / CHECKPOINTS_FOLDER,
            _origin(job),
            join_writers(mesh),
            _report_saved(report),
        ),
        report=report,
        throughput=_throughput(job, data_position),
        skipped_steps=skipped_steps,
        loss_spikes=LossSpikes(),
        stragglers=Stragglers(
            lines_along(AxisName.STAGE, mesh.degrees),
            ranks_sharing_cores=len(mesh.on_node) if mesh.device.type == "cpu" else 1,
        ),
        data_position=data_position,
        step=data_position.step,
    )


def build_engine(
    parts: ModelParts, updater: Updater, spec: RunSpec, mesh: Mesh, stages: Stages | None
) -> Engine:
    """The engine of ``spec`` over a model that has its memory."""
    loss = _build_loss(parts, spec, mesh)
    if spec.parallelism.engine is EngineKind.DEEPSPEED:
        from trainwright_trainer.training.deepspeed_engine import DeepSpeedEngine, DeepSpeedUpdater

        assert isinstance(updater, DeepSpeedUpdater)
        return DeepSpeedEngine(parts.model, updater, mesh, spec.accumulation_steps, loss)
    return TorchEngine(
        parts.model, updater, mesh, _build_forward_backward(parts, updater, spec, mesh, stages, loss)
    )


def _build_forward_backward(
    parts: ModelParts, updater: Updater, spec: RunSpec, mesh: Mesh, stages: Stages | None, loss: HeadLoss
) -> ForwardBackward:
    kind, accumulation_steps = spec.precision.kind, spec.accumulation_steps
    if stages is None:
        axis = mesh.data if uses_fsdp(parts.model) else None
        return GradientAccumulation(
            parts.model, updater, mesh, kind, accumulation_steps, loss, _head_logits(spec, mesh), axis
        )
    # importing torch's pipelining takes a second
    from trainwright_trainer.parallel.pipeline.pipelined_forward_backward import PipelineForwardBackward
    from trainwright_trainer.parallel.pipeline.torch_schedules import ActivationSpec

    batch = spec.batch
    activation = ActivationSpec(
        batch.micro_sequences, batch.sequence_tokens, spec.model.width, kind, mesh.tensor.ranks
    )
    return PipelineForwardBackward(
        parts.model,
        parts.shard_specs,
        updater,
        mesh,
        stages,
        activation,
        accumulation_steps,
        loss,
        _head_logits(spec, mesh),
        parts.deferred,
    )


def _build_loss(parts: ModelParts, spec: RunSpec, mesh: Mesh) -> HeadLoss:
    """The loss function that fits the model after its passes."""
    loss = _chunked_loss(parts.compiled, spec, mesh)
    return fsdp_head_loss(parts.model, loss) if uses_fsdp(parts.model) else loss


def _chunked_loss(compiled: bool, spec: RunSpec, mesh: Mesh) -> HeadLoss:
    chunk_tokens = spec.memory.loss_chunk_tokens
    options = LossOptions(spec.model.final_logit_softcapping, spec.optimizer.z_loss)
    if mesh.tensor.ranks == 1:
        full_gradient = compile_gradient(chunk_gradient) if compiled else chunk_gradient
        at_once = compiled and mesh.device.type == "cuda"
        return partial(
            head_loss,
            chunk_tokens=chunk_tokens,
            gradient_of=full_gradient,
            always_at_once=at_once,
            options=options,
        )
    gradient = vocab_parallel_chunk_gradient
    return partial(
        vocab_parallel_head_loss,
        chunk_tokens=chunk_tokens,
        vocabulary=spec.data.tokenizer.size,
        axis=mesh.tensor,
        gradient_of=compile_gradient(gradient) if compiled else gradient,
        options=options,
    )


def _head_logits(spec: RunSpec, mesh: Mesh) -> HeadLogits:
    softcap = spec.model.final_logit_softcapping
    if mesh.tensor.ranks == 1:
        return partial(head_logits, softcap=softcap)
    vocabulary = spec.data.tokenizer.size
    return partial(vocab_parallel_head_logits, vocabulary=vocabulary, axis=mesh.tensor, softcap=softcap)


def _attention_kernels(spec: RunSpec, mesh: Mesh) -> str:
    """What computes attention on this rank's GPU."""
    model, tensor = spec.model, mesh.tensor.ranks
    dtype = torch.float32 if spec.precision.kind is PrecisionKind.FP32 else torch.bfloat16
    sample = torch.empty((), dtype=dtype, device=mesh.device)
    heads, key_heads = model.heads // tensor, model.key_value_heads // tensor
    plain = attention_kernel(heads, key_heads, spec.batch.sequence_tokens, model.features_per_head, sample)
    if not has_masks(spec):
        return plain
    masked = "FlexAttention" if uses_flex_attention(spec) else "masked SDPA"
    unmasked = not is_masked_everywhere(spec) and "full_attention" in model.layer_types
    return f"{masked} in layers with a window, {plain} in the others" if unmasked else masked


def _flops_per_token(spec: RunSpec) -> int:
    return flops_per_token(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)


def _initialize_or_resume(
    job: JobSpec, resume: Path, mesh: Mesh, parts: ModelParts
) -> tuple[Updater, SkippedSteps, DataPosition]:
    """The updater and the counters, new or from the checkpoint."""
    spec = job.spec
    skipped_steps = SkippedSteps(skip_limit(spec.precision))
    if job.resume is None:
        return materialize(parts, spec, mesh, fresh=True), skipped_steps, START
    wanted = None if job.resume.forked else config_digest(spec)
    manifest = read_checkpoint(resume, wanted, job.resume.digest)
    with verifying(resume, manifest, mesh):
        updater = materialize(parts, spec, mesh, fresh=False)
        if job.resume.forked:
            _check_fork_fits(resume, manifest, updater, mesh)
        restore(resume, manifest, updater, mesh)
        skipped_steps.restore(manifest.state)
    data_position = data_position_of(resume, manifest)
    if job.resume.data_from_start:
        data_position = replace(data_position, sequences=0)
    already_read = max(data_position.sequences, job.resume.sequences_read)
    data_position = replace(data_position, sequences=already_read)
    return updater, skipped_steps, data_position


def _check_fork_fits(resume: Path, manifest: CheckpointManifest, updater: Updater, mesh: Mesh) -> None:
    """Another run's checkpoint may be valid and still not fit. Then this run's configuration is at fault.

    Raises:
        BadJobError: some tensor differs; one rank names it.
    """
    try:
        check_fits(resume, manifest, updater, mesh)
    except CheckpointInvalidError as error:
        raise BadJobError(f"the parent's checkpoint does not fit this run: {error}") from error


def _open_data(job: JobSpec, folder: Path) -> tuple[TokenStream, TokenStream, int]:
    """The training and the validation split, checked against the spec, and the last token of each document."""
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
        validation = TokenStream(folder, manifest.validation, manifest.token_type, length)
        return train, validation, manifest.end_of_text
    except (ValueError, FileNotFoundError) as error:
        raise BadJobError(f"data: {error}") from error


def _shared_batches(
    job: JobSpec, mesh: Mesh, train: TokenStream, data_position: DataPosition
) -> SharedBatches | None:
    """The batches that the reader of this node reads, if the launcher has started one."""
    path = os.environ.get(BATCHES_VARIABLE)
    if path is None:
        return None
    local_rank = mesh.rank - mesh.on_node.start
    ring = BatchRing(path, ring_layout(job))
    return SharedBatches(ring, local_rank, mesh.data.rank, train.token_type, data_position)


def _check_tokenizer(manifest: ShardManifest, spec: RunSpec) -> None:
    wanted = spec.data.tokenizer
    if (manifest.tokenizer.kind, manifest.tokenizer.size) != (wanted.kind, wanted.size):
        raise BadJobError(
            f"spec.data.tokenizer: {wanted.kind} with {wanted.size} tokens is requested, but "
            f"the data has {manifest.tokenizer.kind} with {manifest.tokenizer.size}"
        )


def _started(job: JobSpec, mesh: Mesh, step: int) -> AttemptStarted:
    return AttemptStarted(
        time=now(),
        attempt=job.attempt,
        resume_step=step,
        ranks=mesh.ranks,
        parameters=count_parameters(
            job.spec.model, job.spec.data.tokenizer.size, job.spec.batch.sequence_tokens
        ).total,
        device=device_name(mesh.device),
        peak_name=job.peak.name if job.peak else None,
        bf16_peak_name=job.bf16_peak.name if job.bf16_peak else None,
    )


def _notes(updater: Updater, stages: Stages | None, uncompiled: str | None) -> Iterator[str]:
    """Notes for users about stages, compilation, and how the state was restored."""
    if stages is not None and stages.note:
        yield stages.note
    if uncompiled is not None:
        yield f"Blocks are not compiled: {uncompiled}."
    if isinstance(updater, FP8Updater) and updater.requantized_tensors:
        yield (
            f"{updater.requantized_tensors} tensors were rounded again, because this layout splits blocks of 128 elements that share a scale."
        )


def _origin(job: JobSpec) -> Origin:
    return Origin(config_digest(job.spec), job.ranks, job.resume.digest if job.resume else None)


def _throughput(job: JobSpec, data_position: DataPosition) -> Throughput:
    spec = job.spec
    return Throughput(
        steps=spec.schedule.steps,
        tokens_per_step=spec.tokens_per_step,
        tokens_before=data_position.tokens_after(0, spec.tokens_per_step),
        flops_per_token=_flops_per_token(spec),
        recomputed_flops_per_token=recomputed_flops_per_token(
            spec.model, spec.memory, spec.batch.sequence_tokens
        ),
        ranks=job.ranks,
        peak=job.peak,
        bf16_peak=job.bf16_peak,
    )


def _report_saved(report: Report) -> Callable[[SavedCheckpoint], None]:
    def on_saved(saved: SavedCheckpoint) -> None:
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

    return on_saved
