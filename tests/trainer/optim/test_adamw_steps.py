"""Four steps of training move each weight as torch's AdamW does, in every format and layout that a spec allows.

AdamW updates each element by itself, so each rank repeats its own updates: torch's AdamW in float64 starts from
the same weights and gets the gradients that the run's optimizer gets, after all sums, roundings and clipping.

At a learning rate of 1e-3, where four updates move a weight by up to 4e-3, a weight should end within 3e-4 of
where torch puts it. With float32 masters and moments it ends within 1e-6. Other formats are rounded
stochastically, by less than a spacing each time, and the worst case is further, so they are held to two bounds:
their worst case, and how much of a matrix may be beyond 3e-4.

    first moments in E4M3       off by up to an eighth in each step before: 3.5e-4 in the worst case
    second moments in E4M3      likewise, halved by the root: 1.8e-4 more. A gradient below 2^-7 of the largest
                                of its block has a square below E4M3's normal numbers; it is rounded up to the
                                smallest code, and only the clamp bounds the update
    float16 masters             off by up to a spacing in each step. Norms have weights of 1, where the spacing
                                is 4.9e-4 below and 9.8e-4 above: 3e-4 cannot be stored there
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn.functional import pad

from tests.selection import partly_slow
from tests.trainer.fp8.adamw_formats import BLOCK, PAPER
from tests.trainer.fp8.state.test_optimizer import ALL_FLOAT32, E4M3_SECOND, FP8_MASTER
from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import start
from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright.contracts.precision_spec import FP8Level, FP8Spec, MomentsKind
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.compute.formats import widen
from trainwright_trainer.fp8.state import updater as fp8_updater
from trainwright_trainer.fp8.state.optimizer import StateFormats, largest_update, state_formats
from trainwright_trainer.fp8.state.row_layout import ROW, ParamSlot, view_of
from trainwright_trainer.fp8.state.segments import Segments
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.optim.optimizer import set_updates
from trainwright_trainer.optim.replicated_updater import ReplicatedUpdater
from trainwright_trainer.optim.sharded_updater import ShardedUpdater
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import Training

STEPS = 4
LEARNING_RATE = 1e-3
BOUND = 3e-4
SPEC = OptimizerSpec()

# Weights of at most 1 are rounded to float32 four times, and each update is accurate to 1e-5 of itself.
FLOAT32_BOUND = STEPS * (2.0**-23 + LEARNING_RATE * 1e-5)


def _worst_case(beta: float, power: float) -> float:
    """Sum of the relative errors of four updates whose moment is off by an eighth in each step before.

    Of constant gradients: the moment of step t is c = 1 - beta^t of them, and an update takes its ``power``.
    """
    c = [1 - beta**step for step in range(STEPS + 1)]
    return sum(
        power * sum(beta ** (step - before) * c[before] / 8 for before in range(1, step)) / c[step]
        for step in range(1, STEPS + 1)
    )


FIRST_BOUND = LEARNING_RATE * _worst_case(SPEC.beta1, 1.0)
SECOND_BOUND = LEARNING_RATE * _worst_case(SPEC.beta2, 0.5)

BEYOND = {PAPER.second: 5e-4, BLOCK.second: 2e-3}
"""The fraction of a matrix that may be beyond ``BOUND``, by the format of second moments."""

CLAMPED = 2 * LEARNING_RATE * sum(largest_update(SPEC.beta1, SPEC.beta2, step + 1) for step in range(STEPS))
"""The largest difference between two updates within the clamp."""

Weights = dict[str, Tensor]


class UpdatedWeight(NamedTuple):
    """A weight, or a rank's shard of it, after the last step."""

    weight: Tensor
    expected: Tensor
    gradients: Tensor
    """(steps, …)."""


class Reference:
    """torch's AdamW in float64 over this rank's weights."""

    def __init__(self, given: Mapping[str, Tensor], spec: OptimizerSpec) -> None:
        self.weights = {name: torch.nn.Parameter(weight.double()) for name, weight in given.items()}
        groups = [
            {"params": [weight], "weight_decay": spec.weight_decay if weight.ndim > 1 else 0.0}
            for weight in self.weights.values()
        ]
        self._optimizer = torch.optim.AdamW(
            groups, lr=LEARNING_RATE, betas=(spec.beta1, spec.beta2), eps=spec.epsilon
        )

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        assert gradients.keys() == self.weights.keys()
        for name, weight in self.weights.items():
            weight.grad = gradients[name].double()
        self._optimizer.step()


class TorchWeights:
    """The weights that torch's fused AdamW updates on this rank, and their gradients in the last step."""

    def __init__(self, updater: ReplicatedUpdater | ShardedUpdater) -> None:
        self._optimizer = updater.optimizer
        self._step = self._optimizer.step
        self.gradients: Weights = {}

    def recording(self) -> AbstractContextManager[object]:
        return patch.object(self._optimizer, "step", self._record)

    def weights(self) -> Weights:
        return {
            f"{number}": _local(weight)
            for number, weight in enumerate(
                weight for group in self._optimizer.param_groups for weight in group["params"]
            )
        }

    def _record(self) -> None:
        groups = self._optimizer.param_groups
        weights = [weight for group in groups for weight in group["params"]]
        self.gradients = {f"{number}": _local(weight.grad) for number, weight in enumerate(weights)}
        self._step()


def _local(tensor: Tensor) -> Tensor:
    """A copy of a tensor, or of this rank's shard of it."""
    full = tensor.detach()
    return (full.to_local() if hasattr(full, "to_local") else full).clone()


class ScaledWeights:
    """The weights that ``ScaledAdamW`` updates on this rank, and their gradients, as real numbers."""

    def __init__(self, updater: FP8Updater) -> None:
        self._optimizer, self._layout = updater.optimizer, updater.layout
        self._first = self._layout.first_rows()
        self._update = self._optimizer.update
        self._gradients_R128 = torch.zeros(self._optimizer.master.codes.shape)

    def recording(self) -> AbstractContextManager[object]:
        return patch.object(self._optimizer, "update", self._record)

    def weights(self) -> Weights:
        master = self._optimizer.master
        return {
            slot.name: widen(self._view(master.codes, slot), torch.float32) * master.scale[slot.index]
            for slot in self._layout.local_slots
        }

    @property
    def gradients(self) -> Weights:
        return {
            slot.name: self._view(self._gradients_R128, slot).clone() for slot in self._layout.local_slots
        }

    def _record(
        self, rows: slice, slots: slice, segments: Segments, codes: Tensor, scale: Tensor, *more: Any
    ) -> Any:
        scale_of_row = scale[segments.tensor_of_row + slots.start][:, None]
        self._gradients_R128[rows] = widen(codes, torch.float32) * scale_of_row
        return self._update(rows, slots, segments, codes, scale, *more)

    def _view(self, rows: Tensor, slot: ParamSlot) -> Tensor:
        return view_of(rows, self._first[slot.name], slot)


def learn(mesh: Mesh, job_file: Path, fault: str = "none") -> dict[str, UpdatedWeight]:
    """Train four steps; returns the weights that this rank updates."""
    with FORMATS.get(fault, nullcontext)():
        training = start(mesh, job_file)
    STATE.get(fault, lambda training: None)(training)
    learning_rate = LEARNING_RATE * (1.1 if fault == FASTER else 1.0)
    updater = training.engine.updater
    kept = ScaledWeights(updater) if isinstance(updater, FP8Updater) else TorchWeights(updater)
    reference = Reference(kept.weights(), training.spec.optimizer)
    gradients: dict[str, list[Tensor]] = {name: [] for name in reference.weights}
    with kept.recording():
        for step in range(1, STEPS + 1):
            timer = StepTimer(mesh.device)
            timer.start()
            training.engine.step(training.loader.micro_batches(step), learning_rate, timer)
            reference.step(kept.gradients)
            for name, gradient in kept.gradients.items():
                gradients[name].append(gradient)
    return {
        name: UpdatedWeight(weight, reference.weights[name].detach(), torch.stack(gradients[name]))
        for name, weight in kept.weights().items()
    }


def complaints(moved: Mapping[str, UpdatedWeight], formats: StateFormats) -> list[str]:
    """Describe the weights that are further from torch's than their formats explain."""
    found = []
    for name, item in moved.items():
        error = item.weight.double() - item.expected
        if not bool((error.abs() <= _allowed(item, formats)).all()):
            found.append(f"{name} is {float(error.abs().max()):.1e} off")
        if formats == ALL_FLOAT32 or item.weight.ndim == 1:
            continue
        if float((error.abs() > BOUND).double().mean()) > BEYOND[formats.second]:
            found.append(f"too much of {name} is off")
        # Errors of n elements are independent and unbiased. Five deviations of their mean.
        if abs(float(error.mean())) > 5 * float(error.square().mean().sqrt()) / math.sqrt(error.numel()):
            found.append(f"{name} is off in one direction")
    return found


def _allowed(item: UpdatedWeight, formats: StateFormats) -> Tensor:
    """How far each element may be from torch's."""
    if formats == ALL_FLOAT32:
        return torch.tensor(FLOAT32_BOUND)
    of_moments = torch.tensor(FIRST_BOUND)
    if formats.second == BLOCK.second:
        of_moments = torch.where(_normal_second_moment(item.gradients), FIRST_BOUND + SECOND_BOUND, CLAMPED)
    largest = torch.maximum(item.weight.double().abs(), item.expected.abs())
    return of_moments + STEPS * 2.0 ** (largest.log2().floor() - 10)


def _normal_second_moment(gradients: Tensor) -> Tensor:
    """Elements whose gradient is above 2^-7 of the largest of its 128 in each step."""
    steps, elements = len(gradients), gradients[0].numel()
    rows = pad(gradients.abs().flatten(1), (0, -elements % ROW)).view(steps, -1, ROW)
    normal = rows > 2.0**-7 * rows.amax(2, keepdim=True)
    return normal.all(0).flatten()[:elements].view(gradients.shape[1:])


class Case(NamedTuple):
    ranks: int
    precision: dict[str, Any]
    parallelism: dict[str, Any] = {}
    released: bool = False
    """Whether each weight is updated in the backward pass."""

    @property
    def formats(self) -> StateFormats:
        fp8 = self.precision.get("fp8")
        return ALL_FLOAT32 if fp8 is None else state_formats(SPEC, FP8Spec.model_validate(fp8))

    @property
    def sections(self) -> dict[str, Any]:
        """Sections of the spec. Updates in the backward pass exclude clipping, accumulation and skipped steps."""
        sections = {
            "model": {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "feed_forward": 128}
            | {"tied_embeddings": False},
            "batch": {"sequence_tokens": 32, "micro_sequences": 2, "global_sequences": 8},
            "precision": {"compile": "off"} | self.precision,
            "parallelism": self.parallelism,
        }
        if self.released:
            sections["batch"] = {"sequence_tokens": 32, "micro_sequences": 8, "global_sequences": 8}
            sections["optimizer"] = {"clip_norm": None}
            released = self.precision["fp8"] | {"optimizer_in_backward": True, "skip_limit": 0}
            sections["precision"] = {"compile": "off", "kind": "fp8", "fp8": released}
        return sections


def _shipped() -> Iterator[dict[str, Any]]:
    """Every level with every format of moments that a spec allows."""
    for level, moments in product(FP8Level, MomentsKind):
        recipe = {"level": level, "moments": moments}
        try:
            FP8Spec.model_validate(recipe)
        except ValidationError:
            continue
        yield recipe


def _cases() -> Iterator[tuple[str, Case]]:
    for kind in ("fp32", "bf16"):
        yield f"{kind}, one rank", Case(1, {"kind": kind})
        yield f"{kind}, replicated", Case(2, {"kind": kind})
        for stage in (1, 2, 3):
            yield f"{kind}, ZeRO {stage}", Case(2, {"kind": kind}, {"zero_stage": stage})
    for recipe in _shipped():
        name = f"{recipe['level']}, {recipe['moments']}"
        precision = {"kind": "fp8", "fp8": recipe}
        yield f"{name}, one rank", Case(1, precision)
        yield f"{name}, two ranks", Case(2, precision)
        yield f"{name}, tensor ranks", Case(2, precision, {"tensor": 2})
        if recipe["level"] != FP8Level.O1:
            yield f"{name}, in the backward pass", Case(1, precision, released=True)


CASES = dict(_cases())
IN_MAKE_TEST = (
    "fp32, replicated",
    "bf16, ZeRO 3",
    "O2, paper, one rank",
    "O2, block, in the backward pass",
    "O3, paper, two ranks",
)


def _moved(folder: Path, data: Path, case: Case, fault: str = "none") -> list[dict[str, UpdatedWeight]]:
    job_file = write_job(folder, data, case.ranks, **case.sections)
    results: list[dict[str, UpdatedWeight]] = on_mesh(read_job(job_file).spec.degrees, learn, job_file, fault)
    return results


def test_every_pair_of_formats_that_a_spec_allows_is_a_case() -> None:
    tried = [(FP8Level(level), MomentsKind(moments)) for level, moments in product(FP8Level, MomentsKind)]
    pairs = {(recipe["level"], recipe["moments"]) for recipe in _shipped()}
    assert set(tried) - pairs == {(FP8Level.O1, MomentsKind.BLOCK)}
    assert {case.formats for case in CASES.values()} == {
        ALL_FLOAT32,
        fp8_updater.state_formats(SPEC, FP8Spec()),
        BLOCK,
    }


@pytest.mark.parametrize("name", partly_slow(CASES, IN_MAKE_TEST))
def test_four_steps_equal_torchs(tmp_path: Path, data: Path, name: str) -> None:
    case = CASES[name]
    results = _moved(tmp_path, data, case)
    updated = [item for result in results for item in result.values()]
    assert len(results) == case.ranks and all(results)
    assert all(bool((item.gradients != 0).any()) for item in updated)
    assert [complaints(result, case.formats) for result in results] == [[] for _ in results]


FASTER = "the learning rate is a tenth too large"


def _miscount(training: Training) -> None:
    updater = training.engine.updater
    if isinstance(updater, FP8Updater):
        updater.optimizer.updates = 1
    else:
        assert isinstance(updater, ReplicatedUpdater)
        set_updates(updater.optimizer, 1)


def _stored_in(formats: StateFormats) -> Callable[[], AbstractContextManager[object]]:
    return lambda: patch.object(fp8_updater, "state_formats", lambda optimizer, fp8: formats)


STATE: dict[str, Callable[[Training], None]] = {"updates are miscounted": _miscount}
FORMATS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "masters in E4M3": _stored_in(FP8_MASTER),
    "second moments in E4M3 with one scale": _stored_in(E4M3_SECOND),
}
PLANTED = [
    (FASTER, "fp32, one rank"),
    (FASTER, "O1, paper, one rank"),
    (FASTER, "O2, paper, one rank"),
    (FASTER, "O2, block, one rank"),
    *((fault, name) for fault in STATE for name in ("fp32, one rank", "O2, paper, one rank")),
    *((fault, "O2, paper, one rank") for fault in FORMATS),
]


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(("fault", "name"), PLANTED)
def test_an_injected_fault_moves_weights_too_far(tmp_path: Path, data: Path, fault: str, name: str) -> None:
    """Negative controls of the test above."""
    case = CASES[name]
    assert any(complaints(result, case.formats) for result in _moved(tmp_path, data, case, fault))
