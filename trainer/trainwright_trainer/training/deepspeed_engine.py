"""The second engine: DeepSpeed runs the step (Rajbhandari et al. 2020; Ren et al. 2021, "ZeRO-Offload").

    owns   each data rank, by stage: 1 a shard of the moments, 2 of the gradients too, 3 of the weights too
    moves  by DeepSpeed's own hooks and buckets; shards are ranges of all matrices, or of all vectors, laid end to end

Unlike the native engine, it can keep optimizer state, and weights too, in host memory. A step computes the same:
DeepSpeed gets weights in float32, the forward pass uses our autocast, torch's AdamW updates the shards, and the
learning rate comes from our schedule. DeepSpeed's own bfloat16 mode would keep weights in bfloat16 and round gradients
before summing them; so weights and gradients are sent in float32 here.

DeepSpeed's checkpoints are pickles: none is written or read. The state is saved and restored as entire
tensors by canonical name, like that of any other updater. This is the only file that imports DeepSpeed.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import warnings
from collections.abc import Collection, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.nn.functional import pad

from trainwright.contracts.parallelism_spec import OffloadKind
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright_trainer.data.loader import Batch
from trainwright_trainer.distributed.axis import detect_lost_ranks
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.process_group import CPU_BACKEND
from trainwright_trainer.distributed.progress_counters import counted
from trainwright_trainer.distributed.shard_spec import ShardSpecs, full_slice
from trainwright_trainer.model.key_value_cache import KeyValueCache
from trainwright_trainer.model.loss import HeadLoss
from trainwright_trainer.model.next_token import head_logits
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.step_timer import StepTimer, Timing
from trainwright_trainer.optim.clip import clip, global_norm
from trainwright_trainer.optim.non_finite import first_non_finite
from trainwright_trainer.optim.optimizer import allocate_state, set_learning_rate, set_updates
from trainwright_trainer.optim.registry import TORCH_OPTIMIZERS
from trainwright_trainer.optim.updater import ReadTensor, StateTensor, Updater
from trainwright_trainer.runtime.autocast import autocast
from trainwright_trainer.runtime.errors import BadJobError
from trainwright_trainer.training.engine import (
    ShouldStop,
    StepMetrics,
    never_stop,
    to_step_metrics,
    with_stop_flag,
)
from trainwright_trainer.training.forward_backward import padding_batches


class DeepSpeedUpdater:
    """``Updater`` whose weights, gradients and moments DeepSpeed stores, in float32.

    DeepSpeed computes the norm, decides and updates in one call, made by ``wait_for_gradients``: a step whose
    gradients are not finite changes nothing, and ``update`` only counts.
    """

    def __init__(self, model: Transformer, shard_specs: ShardSpecs, spec: RunSpec, mesh: Mesh) -> None:
        """``model`` is on the CPU, unsharded, with its initial values; it is moved to its device here."""
        self._deepspeed = import_deepspeed(mesh.device)
        self._stage = spec.parallelism.zero_stage
        self._spec = spec.optimizer
        self._mesh = mesh
        self._order = shard_specs.forward_order
        self._weights = dict(model.named_parameters())
        self._norm = torch.zeros((), device=mesh.device)
        self._not_finite: str | None = None
        self._updates = 0
        self.loss_module = LossModule(model, spec.precision.kind, mesh.device)
        self.runner = _initialize(self._deepspeed, self.loss_module, spec, mesh)
        self._optimizer = self.runner.optimizer if not self._stage else self.runner.optimizer.optimizer
        self._allocate_moments()

    def begin_step(self, learning_rate: float) -> None:
        set_learning_rate(self._optimizer, learning_rate)
        self.runner.set_gradient_accumulation_boundary(False)

    def end_micro_batch(self) -> None:
        """DeepSpeed adds the next micro batch's gradients to this one's."""

    def begin_last_micro_batch(self) -> None:
        self.runner.set_gradient_accumulation_boundary(True)

    def mark_ready(self, names: Collection[str]) -> None:
        raise AssertionError("DeepSpeed reduces gradients in its own hooks only")

    def wait_for_gradients(self) -> None:
        if self._stage:
            self.runner.step()
            # DeepSpeed replaces a norm that is not finite by infinity, and updates nothing.
            self._norm = torch.as_tensor(self.runner.get_global_grad_norm(), dtype=torch.float32).to(
                self._mesh.device
            )
            return
        self._norm = global_norm(list(self._weights.values()))
        if math.isfinite(self._norm):
            clip(list(self._weights.values()), self._norm, self._spec.clip_norm)
            self.runner.step()
        else:
            self._not_finite = first_non_finite(self._weights, self._order, self._mesh.world)
            self.runner.zero_grad()

    def grad_norm(self) -> Tensor:
        return self._norm

    def update(self, norm: Tensor) -> None:
        self._updates += 1

    def skip(self) -> None:
        """``wait_for_gradients`` has updated nothing."""

    def non_finite_tensor(self) -> str | None:
        """Known without ZeRO only: otherwise DeepSpeed has freed the gradients."""
        return self._not_finite

    def metrics(self, step: int) -> dict[str, float]:
        return {}

    def state(self) -> list[StateTensor]:
        """Entire tensors, gathered one by one; the ranks take turns to keep one in host memory."""
        kept = []
        for index, (moment, name) in enumerate(self._state_names()):
            with detect_lost_ranks():
                tensor = self._full_tensor(self._weights[name], moment)
            if index % self._mesh.ranks == self._mesh.rank:
                kept.append(StateTensor(_state_name(moment, name), tensor.cpu()))
        return kept

    def scalars(self) -> dict[str, Any]:
        """An optimizer may depend on the number of updates, which excludes skipped steps."""
        return {"updates": self._updates}

    def restore(self, read: ReadTensor, scalars: dict[str, Any]) -> None:
        """One tensor at a time is in host memory. Each rank reads for itself, so that a failing rank blocks
        no other.
        """
        with torch.no_grad():
            for moment, name in self._state_names():
                weight = self._weights[name]
                self.set_tensor(weight, moment, read(_state_name(moment, name), full_slice(_shape(weight))))
        self._updates = scalars["updates"]
        set_updates(self._optimizer, self._updates)

    @property
    def gathers(self) -> bool:
        """Whether each forward pass gathers weights from all ranks, which must then run equally many."""
        return self._stage == 3

    def _state_names(self) -> list[tuple[str | None, str]]:
        """The moment, or None for the weight itself, and the weight's name of each tensor of the state."""
        return [(moment, name) for moment in (None, *self._spec.states) for name in self._weights]

    def _allocate_moments(self) -> None:
        """Allocate the state that each shard's first update would allocate."""
        if not self._stage:
            allocate_state(self._optimizer, self._spec)
            return
        zero = self.runner.optimizer
        flat = zero.fp32_partitioned_groups_flat if self._stage == 3 else zero.single_partition_of_fp32_groups
        for part in flat:
            made = torch.zeros((), dtype=torch.float32, device=part.device)
            self._optimizer.state[part] = {"step": made} | {
                moment: torch.zeros_like(part) for moment in self._spec.states
            }
        if self._stage < 3:
            zero._lazy_init_hp_params_optimizer_state()

    def _full_tensor(self, weight: nn.Parameter, moment: str | None) -> Tensor:
        """An entire tensor of the state; every rank must call this."""
        if moment is None:
            if self._stage < 3:
                return weight.detach()
            return self._api.safe_get_full_fp32_param(weight)  # type: ignore[no-any-return]
        if not self._stage:
            return self._optimizer.state[weight][moment]  # type: ignore[no-any-return]
        return self._api.safe_get_full_optimizer_state(weight, moment)  # type: ignore[no-any-return]

    def set_tensor(self, weight: Any, moment: str | None, value: Tensor) -> None:
        """Set this rank's shard of a tensor of the state from ``value``, the entire tensor."""
        if self._stage == 3:
            part = _partition(value, weight.ds_tensor.numel(), self._mesh)
            if moment is not None:
                self._api.safe_set_local_optimizer_state(weight, part, moment)
                return
            self._api.safe_set_local_fp32_param(weight, part)
            weight.ds_tensor.copy_(part)
            if weight.data.shape == value.shape:  # small weights stay gathered
                weight.data.copy_(value)
        elif moment is None:
            weight.copy_(value)
            if self._stage:
                self._api.safe_set_full_fp32_param(weight, value)
        elif self._stage:
            self._api.safe_set_full_optimizer_state(weight, value, moment)
        else:
            self._optimizer.state[weight][moment].copy_(value)

    @property
    def _api(self) -> Any:
        return self._deepspeed.utils


class DeepSpeedEngine:
    """``Engine`` over data ranks whose passes and updates are DeepSpeed's."""

    def __init__(
        self,
        model: Transformer,
        updater: DeepSpeedUpdater,
        mesh: Mesh,
        accumulation_steps: int,
        head_loss: HeadLoss,
    ) -> None:
        self.model = model
        self.updater: Updater = updater
        self._runner = updater.runner
        self._mesh = mesh
        self._accumulation_steps = accumulation_steps
        self._gathers = updater.gathers
        updater.loss_module.head_loss = head_loss

    def step(
        self,
        micro_batches: Iterable[Batch],
        learning_rate: float,
        timer: StepTimer,
        should_stop: ShouldStop = never_stop,
    ) -> StepMetrics:
        self.updater.begin_step(learning_rate)
        with detect_lost_ranks():
            loss = self._compute_gradients(micro_batches, timer)
            sums = self._mesh.data.all_reduce(with_stop_flag(loss, should_stop))
            timer.mark(Timing.COLLECTIVES)
            self.updater.wait_for_gradients()
        metrics = to_step_metrics(sums, self.updater.grad_norm())
        if metrics.finite:
            self.updater.update(self.updater.grad_norm())
        else:
            metrics = metrics._replace(non_finite_tensor=self.updater.non_finite_tensor())
        timer.mark(Timing.OPTIMIZER)
        return metrics

    def mean_loss(self, batches: Iterable[Batch]) -> float:
        runner, total = self._runner, torch.zeros(2, dtype=torch.float64, device=self._mesh.device)
        runner.eval()
        with torch.no_grad(), detect_lost_ranks():
            if self._gathers:
                batches = list(batches)
                for idle in padding_batches(len(batches), self._mesh.data, self.model.positions):
                    runner(idle.tokens, idle.targets)
                batches = counted(batches, self._mesh.progress)
            for cpu_batch in batches:
                batch = cpu_batch.to(self._mesh.device)
                tokens = torch.tensor(batch.targets.numel(), device=self._mesh.device)
                total += torch.stack((runner(batch.tokens, batch.targets).double() * tokens, tokens))
        runner.train()
        summed, tokens_of_all = self._mesh.data.all_reduce(total).tolist()
        return float(summed / tokens_of_all)

    def next_logits(self, tokens_BT: Tensor, at_B: Tensor, cache: KeyValueCache) -> Tensor:
        self._runner.eval()
        with torch.no_grad(), detect_lost_ranks():
            logits_BV: Tensor = self._runner(tokens_BT, at_B=at_B, cache=cache)
        self._runner.train()
        return logits_BV

    def _compute_gradients(self, micro_batches: Iterable[Batch], timer: StepTimer) -> Tensor:
        """Leave the mean gradients of all ranks with DeepSpeed; returns this rank's share of the mean loss."""
        runner, total = self._runner, torch.zeros((), device=self._mesh.device)
        for index, cpu_batch in enumerate(micro_batches, start=1):
            batch = cpu_batch.to(self._mesh.device)
            timer.mark(Timing.DATA)
            if index == self._accumulation_steps:
                self.updater.begin_last_micro_batch()
            loss = runner(batch.tokens, batch.targets)
            total += loss.detach() / (self._accumulation_steps * self._mesh.data.ranks)
            timer.mark(Timing.FORWARD)
            # DeepSpeed checks gradients only. This factor is 1, or NaN if the loss is not finite,
            # which makes the gradients NaN.
            runner.backward(
                loss * (1 + 0 * loss.detach())
            )  # backward divides by the micro batches, and the reduction by the ranks
            if index < self._accumulation_steps:
                self.updater.end_micro_batch()
            timer.mark(Timing.BACKWARD)
        return total


class LossModule(nn.Module):
    """A model with its loss in one forward pass, which is what DeepSpeed trains, or with logits of single tokens."""

    head_loss: HeadLoss

    def __init__(self, model: Transformer, precision: PrecisionKind, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self._precision = precision
        self._device = device

    def forward(
        self,
        tokens_BT: Tensor,
        targets_BT: Tensor | None = None,
        at_B: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """The mean loss of ``targets_BT``, or the logits (B, V) after the positions ``at_B``."""
        with autocast(self._precision, self._device):
            features_BTD = self.model.features(tokens_BT, cache)
            if at_B is not None:
                return head_logits(features_BTD, self.model.head, at_B, self.model.logit_softcap)
            assert targets_BT is not None
            return self.head_loss(features_BTD, self.model.head.weight, targets_BT)


def import_deepspeed(device: torch.device) -> Any:
    """Import DeepSpeed, which detects its device at import.

    Raises:
        BadJobError: it is not installed.
    """
    os.environ["DS_ACCELERATOR"] = device.type
    os.environ["LOCAL_RANK"] = str(device.index or 0)
    try:
        deepspeed = importlib.import_module("deepspeed")
    except ModuleNotFoundError as error:
        raise BadJobError(
            f"spec.parallelism.engine: deepspeed is not installed on this node ({error}): "
            "install it (pip install 'trainwright[deepspeed]'), or use engine native"
        ) from error
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # On CPUs it would compile its own collective at startup, minutes on a busy node, and then wait in it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # It calls torch's collectives by names that newer torch releases deprecate, with a warning each time.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    return deepspeed


def _initialize(deepspeed: Any, loss_module: LossModule, spec: RunSpec, mesh: Mesh) -> Any:
    """DeepSpeed's own engine over ``loss_module``, whose weights are on the CPU."""
    _init_single_process_group(mesh)
    settings = deepspeed_settings(spec, mesh.device)
    optimizer = TORCH_OPTIMIZERS[spec.optimizer.kind](loss_module, spec.optimizer, "model.")
    if spec.parallelism.zero_stage == 3:
        # Shard one weight at a time, so that a model that does not fit on the device is never there unsharded.
        kept = "cpu" if spec.parallelism.offload is OffloadKind.PARAMETERS else mesh.device.type
        deepspeed.zero.Init(
            module=loss_module, config_dict_or_path=settings, remote_device=kept, dtype=torch.float32
        )
        loss_module.model.to(mesh.device)
        deepspeed.zero.register_external_parameter(loss_module, loss_module.model.head.weight)
    runner, *_ = deepspeed.initialize(
        model=loss_module, optimizer=optimizer, config=settings, dist_init_required=False
    )
    return runner


def deepspeed_settings(spec: RunSpec, device: torch.device) -> dict[str, Any]:
    """DeepSpeed's configuration. Options that are left out are off, or do not affect accuracy."""
    parallelism = spec.parallelism
    zero: dict[str, Any] = {"stage": parallelism.zero_stage}
    host = {"device": "cpu", "pin_memory": device.type == "cuda"}
    if parallelism.offload is not OffloadKind.NONE:
        zero["offload_optimizer"] = host
    if parallelism.offload is OffloadKind.PARAMETERS:
        zero["offload_param"] = host
    return {
        "train_micro_batch_size_per_gpu": spec.batch.micro_sequences,
        "gradient_accumulation_steps": spec.accumulation_steps,
        "gradient_clipping": (spec.optimizer.clip_norm or 0.0) if parallelism.zero_stage else 0.0,
        "zero_optimization": zero,
        # torch's fused AdamW, also in host memory: DeepSpeed's own would need a C++ compiler on every node.
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": None,
    }


def _init_single_process_group(mesh: Mesh) -> None:
    """DeepSpeed needs a process group even for one rank."""
    if mesh.ranks == 1 and not dist.is_initialized():
        backend = "nccl" if mesh.device.type == "cuda" else CPU_BACKEND
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)


def _partition(value: Tensor, length: int, mesh: Mesh) -> Tensor:
    """This rank's range of a flattened tensor that is split into ranges of ``length``, padded with zeros."""
    flat = value.flatten()
    return pad(flat, (0, length * mesh.ranks - flat.numel())).narrow(0, length * mesh.rank, length)


def _shape(weight: Any) -> tuple[int, ...]:
    """The unsharded shape of a weight."""
    return tuple(getattr(weight, "ds_shape", weight.shape))


def _state_name(moment: str | None, name: str) -> str:
    return f"model.{name}" if moment is None else f"optimizer.{moment}.{name}"
