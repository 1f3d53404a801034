"""The second engine: DeepSpeed runs the step (Rajbhandari et al. 2020; Ren et al. 2021, "ZeRO-Offload").

    owns   each data rank, by stage: 1 a part of the moments, 2 of the gradients too, 3 of the weights too
    moves  by DeepSpeed's own hooks and buckets; parts are stretches of all matrices, or of all vectors, laid end to end

It is for what the native engine does not do: states, or weights too, in host memory. What a step computes is the same: DeepSpeed
is given weights in float32, the forward pass opens our autocast, torch's AdamW moves the parts, and the learning rate
comes from our schedule. DeepSpeed's own bfloat16 would keep weights in bfloat16 and round gradients before they are
summed; so here weights and gradients travel in float32.

Its checkpoints are pickles: none is written or read here. The state leaves and enters as whole tensors by canonical
name, like that of any other updater. This is the only file that imports DeepSpeed.
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
from trainwright_trainer.ends import BadJobError
from trainwright_trainer.engine import Asked, StepNumbers, as_numbers, nobody_asks, with_question
from trainwright_trainer.mesh import CPU_BACKEND, Mesh, naming_lost_ranks
from trainwright_trainer.model.loss import HeadLoss
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.throughput import Phase, StepClock
from trainwright_trainer.optim.adamw import (
    MOMENTS,
    allocate_state,
    build_adamw,
    set_learning_rate,
    set_updates,
)
from trainwright_trainer.optim.clip import clip, global_norm
from trainwright_trainer.optim.finite import first_not_finite
from trainwright_trainer.parts import Parts, whole
from trainwright_trainer.passes import autocast, idle_batches
from trainwright_trainer.updater import ReadTensor, StateTensor, Updater


class DeepSpeedUpdater:
    """``Updater`` whose weights, gradients and moments DeepSpeed holds, in float32.

    DeepSpeed measures the norm, decides and moves in one call, which ``finish`` makes: a step whose gradients are not
    finite changes nothing, and ``update`` has no more to do than to count.
    """

    def __init__(self, model: Transformer, parts: Parts, spec: RunSpec, mesh: Mesh) -> None:
        """``model`` lies on the CPU, whole, with its first values, and is given its place here."""
        self._deepspeed = _import(mesh.device)
        self._stage = spec.parallelism.zero_stage
        self._clip_norm = spec.optimizer.clip_norm
        self._mesh = mesh
        self._order = parts.order
        self._weights = dict(model.named_parameters())
        self._norm = torch.zeros((), device=mesh.device)
        self._not_finite: str | None = None
        self._updates = 0
        self.learner = Learner(model, spec.precision.kind, mesh.device)
        self.runner = _initialize(self._deepspeed, self.learner, spec, mesh)
        self._optimizer = self.runner.optimizer if not self._stage else self.runner.optimizer.optimizer
        self._allocate_moments()

    def begin(self, learning_rate: float) -> None:
        set_learning_rate(self._optimizer, learning_rate)
        self.runner.set_gradient_accumulation_boundary(False)

    def end_round(self) -> None:
        """DeepSpeed adds the next round's gradients to this one's."""

    def last_round(self) -> None:
        self.runner.set_gradient_accumulation_boundary(True)

    def complete(self, names: Collection[str]) -> None:
        raise AssertionError("gradients are added up by DeepSpeed's hooks only")

    def finish(self) -> None:
        if self._stage:
            self.runner.step()
            # A norm that is not finite was replaced by infinity, and nothing was moved.
            self._norm = torch.as_tensor(self.runner.get_global_grad_norm(), dtype=torch.float32).to(
                self._mesh.device
            )
            return
        self._norm = global_norm(list(self._weights.values()))
        if math.isfinite(self._norm):
            clip(list(self._weights.values()), self._norm, self._clip_norm)
            self.runner.step()
        else:
            self._not_finite = first_not_finite(self._weights, self._order, self._mesh.world)
            self.runner.zero_grad()

    def grad_norm(self) -> Tensor:
        return self._norm

    def update(self, norm: Tensor) -> None:
        self._updates += 1

    def skip(self) -> None:
        """``finish`` has moved nothing."""

    def not_finite(self) -> str | None:
        """Known where ranks share nothing: elsewhere DeepSpeed has let the gradients go."""
        return self._not_finite

    def numbers(self, step: int) -> dict[str, float]:
        return {}

    def state(self) -> list[StateTensor]:
        """Whole tensors, gathered one by one: the ranks take turns at keeping one, in host memory."""
        kept = []
        for index, (kind, name) in enumerate(self._state_names()):
            with naming_lost_ranks():
                tensor = self._gathered(self._weights[name], kind)
            if index % self._mesh.ranks == self._mesh.rank:
                kept.append(StateTensor(_state_name(kind, name), tensor.cpu()))
        return kept

    def position(self) -> dict[str, Any]:
        """AdamW corrects its moments by the number of updates, which is not that of steps where some were skipped."""
        return {"updates": self._updates}

    def restore(self, read: ReadTensor, position: dict[str, Any]) -> None:
        """One tensor at a time is in host memory. Ranks read for themselves: one that fails must keep none waiting."""
        with torch.no_grad():
            for kind, name in self._state_names():
                weight = self._weights[name]
                self._put(weight, kind, read(_state_name(kind, name), whole(_shape(weight))))
        self._updates = position["updates"]
        set_updates(self._optimizer, self._updates)

    @property
    def gathers(self) -> bool:
        """Whether each forward pass gathers weights of all ranks, which must then make as many."""
        return self._stage == 3

    def _state_names(self) -> list[tuple[str | None, str]]:
        """Of each tensor of the state the moment, None for a weight's values, and the weight's name."""
        return [(kind, name) for kind in (None, *MOMENTS) for name in self._weights]

    def _allocate_moments(self) -> None:
        """Give every part the state that its first update would."""
        if not self._stage:
            allocate_state(self._optimizer)
            return
        zero = self.runner.optimizer
        flat = zero.fp32_partitioned_groups_flat if self._stage == 3 else zero.single_partition_of_fp32_groups
        for part in flat:
            made = torch.zeros((), dtype=torch.float32, device=part.device)
            self._optimizer.state[part] = {"step": made} | {
                moment: torch.zeros_like(part) for moment in MOMENTS
            }
        if self._stage < 3:
            zero._lazy_init_hp_params_optimizer_state()

    def _gathered(self, weight: nn.Parameter, kind: str | None) -> Tensor:
        """A whole tensor of the state; every rank must ask."""
        if kind is None:
            if self._stage < 3:
                return weight.detach()
            return self._api.safe_get_full_fp32_param(weight)  # type: ignore[no-any-return]
        if not self._stage:
            return self._optimizer.state[weight][kind]  # type: ignore[no-any-return]
        return self._api.safe_get_full_optimizer_state(weight, kind)  # type: ignore[no-any-return]

    def _put(self, weight: Any, kind: str | None, value: Tensor) -> None:
        """Replace this rank's part of a tensor of the state by that of ``value``, which is whole."""
        if self._stage == 3:
            part = _part_of(value, weight.ds_tensor.numel(), self._mesh)
            if kind is not None:
                self._api.safe_set_local_optimizer_state(weight, part, kind)
                return
            self._api.safe_set_local_fp32_param(weight, part)
            weight.ds_tensor.copy_(part)
            if weight.data.shape == value.shape:  # small weights stay gathered
                weight.data.copy_(value)
        elif kind is None:
            weight.copy_(value)
            if self._stage:
                self._api.safe_set_full_fp32_param(weight, value)
        elif self._stage:
            self._api.safe_set_full_optimizer_state(weight, value, kind)
        else:
            self._optimizer.state[weight][kind].copy_(value)

    @property
    def _api(self) -> Any:
        return self._deepspeed.utils


class DeepSpeedEngine:
    """``Engine`` over data ranks, whose passes and updates are DeepSpeed's."""

    def __init__(
        self, model: Transformer, updater: DeepSpeedUpdater, mesh: Mesh, rounds: int, head_loss: HeadLoss
    ) -> None:
        self.model = model
        self.updater: Updater = updater
        self._runner = updater.runner
        self._mesh = mesh
        self._rounds = rounds
        self._gathers = updater.gathers
        updater.learner.head_loss = head_loss

    def step(
        self,
        micro_batches: Iterable[Batch],
        learning_rate: float,
        clock: StepClock,
        asked: Asked = nobody_asks,
    ) -> StepNumbers:
        self.updater.begin(learning_rate)
        with naming_lost_ranks():
            loss = self._learn(micro_batches, clock)
            sums = self._mesh.data.sum(with_question(loss, asked))
            clock.mark(Phase.COLLECTIVES)
            self.updater.finish()
        numbers = as_numbers(sums, self.updater.grad_norm())
        if numbers.finite:
            self.updater.update(self.updater.grad_norm())
        else:
            numbers = numbers._replace(not_finite=self.updater.not_finite())
            self.updater.skip()
        clock.mark(Phase.OPTIMIZER)
        return numbers

    def mean_loss(self, batches: Iterable[Batch]) -> float:
        runner, total = self._runner, torch.zeros(2, dtype=torch.float64, device=self._mesh.device)
        runner.eval()
        with torch.no_grad(), naming_lost_ranks():
            if self._gathers:
                batches = list(batches)
                for idle in idle_batches(len(batches), self._mesh.data, self.model.positions):
                    runner(idle.tokens, idle.targets)
            for cpu_batch in batches:
                batch = cpu_batch.to(self._mesh.device)
                tokens = torch.tensor(batch.targets.numel(), device=self._mesh.device)
                total += torch.stack((runner(batch.tokens, batch.targets).double() * tokens, tokens))
        runner.train()
        summed, tokens_of_all = self._mesh.data.sum(total).tolist()
        return float(summed / tokens_of_all)

    def _learn(self, micro_batches: Iterable[Batch], clock: StepClock) -> Tensor:
        """Leave the mean gradients of all ranks with DeepSpeed; returns this rank's share of the mean loss."""
        runner, total = self._runner, torch.zeros((), device=self._mesh.device)
        for round_index, cpu_batch in enumerate(micro_batches, start=1):
            batch = cpu_batch.to(self._mesh.device)
            clock.mark(Phase.DATA)
            if round_index == self._rounds:
                self.updater.last_round()
            loss = runner(batch.tokens, batch.targets)
            total += loss.detach() / (self._rounds * self._mesh.data.ranks)
            clock.mark(Phase.FORWARD)
            # DeepSpeed looks at gradients only. This factor is 1, or NaN where the loss is not finite, and so are they then.
            runner.backward(
                loss * (1 + 0 * loss.detach())
            )  # which divides by the rounds, and the sum by the ranks
            if round_index < self._rounds:
                self.updater.end_round()
            clock.mark(Phase.BACKWARD)
        return total


class Learner(nn.Module):
    """A model with its loss, in one forward pass: what DeepSpeed calls a model."""

    head_loss: HeadLoss

    def __init__(self, model: Transformer, precision: PrecisionKind, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self._precision = precision
        self._device = device

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        with autocast(self._precision, self._device):
            features_BTD = self.model.features(tokens_BT)
            return self.head_loss(features_BTD, self.model.head.weight, targets_BT)


def _import(device: torch.device) -> Any:
    """DeepSpeed, which looks for its device when it is imported.

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
    # On CPUs it would compile a collective of its own when it starts, minutes on a busy node, and then wait in it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # It calls torch's collectives by names that newer releases of torch warn of, each time.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    return deepspeed


def _initialize(deepspeed: Any, learner: Learner, spec: RunSpec, mesh: Mesh) -> Any:
    """DeepSpeed's own engine over ``learner``, whose weights are on the CPU."""
    _speak_alone(mesh)
    settings = _settings(spec, mesh.device)
    optimizer = build_adamw(learner, spec.optimizer)
    if spec.parallelism.zero_stage == 3:
        # Weight by weight, so that a model that does not fit on the device never lies there whole.
        kept = "cpu" if spec.parallelism.offload is OffloadKind.PARAMETERS else mesh.device.type
        deepspeed.zero.Init(
            module=learner, config_dict_or_path=settings, remote_device=kept, dtype=torch.float32
        )
        learner.model.to(mesh.device)
        deepspeed.zero.register_external_parameter(learner, learner.model.head.weight)
    runner, *_ = deepspeed.initialize(
        model=learner, optimizer=optimizer, config=settings, dist_init_required=False
    )
    return runner


def _settings(spec: RunSpec, device: torch.device) -> dict[str, Any]:
    """What DeepSpeed is told. Whatever is left out is off, or costs no accuracy."""
    parallelism = spec.parallelism
    zero: dict[str, Any] = {"stage": parallelism.zero_stage}
    host = {"device": "cpu", "pin_memory": device.type == "cuda"}
    if parallelism.offload is not OffloadKind.NONE:
        zero["offload_optimizer"] = host
    if parallelism.offload is OffloadKind.PARAMETERS:
        zero["offload_param"] = host
    return {
        "train_micro_batch_size_per_gpu": spec.batch.micro_sequences,
        "gradient_accumulation_steps": spec.accumulation_rounds,
        "gradient_clipping": (spec.optimizer.clip_norm or 0.0) if parallelism.zero_stage else 0.0,
        "zero_optimization": zero,
        # torch's fused AdamW, also in host memory: DeepSpeed's own would need a C++ compiler on every node.
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": None,
    }


def _speak_alone(mesh: Mesh) -> None:
    """DeepSpeed wants a process group, of one rank too."""
    if mesh.ranks == 1 and not dist.is_initialized():
        backend = "nccl" if mesh.device.type == "cuda" else CPU_BACKEND
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)


def _part_of(value: Tensor, length: int, mesh: Mesh) -> Tensor:
    """This rank's stretch of a tensor that is cut into stretches of ``length``, with zeros where it has ended."""
    flat = value.flatten()
    return pad(flat, (0, length * mesh.ranks - flat.numel())).narrow(0, length * mesh.rank, length)


def _shape(weight: Any) -> tuple[int, ...]:
    """Of the whole weight, which may lie elsewhere."""
    return tuple(getattr(weight, "ds_shape", weight.shape))


def _state_name(kind: str | None, name: str) -> str:
    return f"model.{name}" if kind is None else f"optimizer.{kind}.{name}"
