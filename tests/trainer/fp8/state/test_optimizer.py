"""AdamW in 6 bytes per parameter matches AdamW in float32; shortcuts that look equivalent do not."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from tests.trainer.fp8.adamw_formats import BLOCK, PAPER
from trainwright.contracts.optimizer_spec import LearningRateFactors, OptimizerSpec
from trainwright_trainer.distributed.shard_spec import full_slice
from trainwright_trainer.fp8.compute.formats import E4M3, amax_of, cast, scale_for
from trainwright_trainer.fp8.compute.stochastic_rounding import stochastic_round, uniform_noise
from trainwright_trainer.fp8.state import optimizer as optimizer_module
from trainwright_trainer.fp8.state.optimizer import (
    FLOAT32,
    ScaledAdamW,
    ScaleGranularity,
    StateBuffer,
    StateFormats,
    StorageFormat,
    largest_update,
    round_to_format,
)
from trainwright_trainer.fp8.state.row_layout import ROW, RowLayout, make_row_layout, view_of

CPU = torch.device("cpu")
SPEC = OptimizerSpec(learning_rate=1e-3, weight_decay=0.1)
NO_DECAY = OptimizerSpec(weight_decay=0.0)
ALL_FLOAT32 = StateFormats(FLOAT32, FLOAT32, FLOAT32)
FP8_MASTER = PAPER._replace(master=StorageFormat(E4M3, ScaleGranularity.TENSOR))
UNSCALED_SECOND = PAPER._replace(second=StorageFormat(torch.float16, ScaleGranularity.NOTHING), clamped=False)
E4M3_SECOND = PAPER._replace(second=StorageFormat(E4M3, ScaleGranularity.TENSOR))
TO_NEAREST = PAPER._replace(stochastic=False)


class Stored(NamedTuple):
    """Gradients as the optimizer receives them."""

    codes: Tensor
    scale: Tensor
    amax: Tensor


class OptimizerUnderTest:
    """An optimizer of a few weights, with the accessors that a test needs."""

    def __init__(
        self, weights: Mapping[str, Tensor], formats: StateFormats, spec: OptimizerSpec = SPEC, seed: int = 0
    ) -> None:
        self.layout: RowLayout = make_row_layout(
            {name: full_slice(weight.shape) for name, weight in weights.items()}, 1, 0, False
        )
        self.first_rows = self.layout.first_rows()
        self.optimizer = ScaledAdamW(self.layout, formats, spec, seed, CPU)
        master = self.optimizer.master
        for slot in self.layout.slots:
            master.amax[slot.index] = amax_of(weights[slot.name])
            if master.format.scaled is ScaleGranularity.TENSOR:
                master.scale[slot.index] = scale_for(master.amax[slot.index], master.format.dtype)
            stored = weights[slot.name] / master.scale[slot.index]
            dtype = master.format.dtype
            stored = stored if dtype is torch.float32 else cast(stored, dtype)
            self._codes(master.codes, slot.name).copy_(stored)

    def step(self, gradients: Mapping[str, Tensor], learning_rate: float = 1e-3) -> float:
        """Run one update with ``gradients`` rounded to E4M3 and return the fraction
        of updates that were lost."""
        stored = self.store(gradients)
        self.optimizer.begin_update(learning_rate)
        moved = self.optimizer.update_all(*stored, observe=True)
        return moved.lost.item() / max(1, moved.intended.item())

    def store(self, gradients: Mapping[str, Tensor]) -> Stored:
        places = len(self.layout.slots)
        codes = torch.zeros(self.layout.local_rows, ROW, dtype=E4M3)
        scale, amax = torch.ones(places), torch.zeros(places)
        for slot in self.layout.slots:
            amax[slot.index] = amax_of(gradients[slot.name])
            scale[slot.index] = scale_for(amax[slot.index], E4M3)
            self._codes(codes, slot.name).copy_(cast(gradients[slot.name] / scale[slot.index], E4M3))
        return Stored(codes, scale, amax)

    def gradient(self, stored: Stored, name: str) -> Tensor:
        """A gradient as the optimizer sees it."""
        return self._codes(stored.codes, name).float() * stored.scale[self._place(name)]

    def weight(self, name: str) -> Tensor:
        return self.number("master", name)

    def number(self, kind: str, name: str) -> Tensor:
        """Real values of one kind of state of one weight."""
        numbers = getattr(self.optimizer, kind)
        codes = self._codes(numbers.codes, name).float()
        if numbers.format.scaled is not ScaleGranularity.ROW:
            return codes * numbers.scale[self._place(name)]
        first = self.first_rows[name]
        scales = numbers.scale[first : first + -(-codes.numel() // ROW)].repeat_interleave(ROW)
        return codes * scales[: codes.numel()].view(codes.shape)

    def _codes(self, rows: Tensor, name: str) -> Tensor:
        (slot,) = (slot for slot in self.layout.slots if slot.name == name)
        return view_of(rows, self.first_rows[name], slot)

    def _place(self, name: str) -> int:
        return next(slot.index for slot in self.layout.slots if slot.name == name)


def weights(seed: int = 0) -> dict[str, Tensor]:
    """Shapes of one and two dimensions that do and do not fill rows."""
    draw = torch.Generator().manual_seed(seed)
    return {
        "embedding": torch.randn(50, 24, generator=draw) * 0.02,
        "matrix": torch.randn(64, 48, generator=draw) * 0.1,
        "norm": torch.ones(24),
    }


def realistic_gradients(shapes: Mapping[str, Tensor], step: int, decades: int = 3) -> dict[str, Tensor]:
    """Rows of very different magnitude, like those of rare and common tokens."""
    draw = torch.Generator().manual_seed(step)
    found = {}
    for name, weight in shapes.items():
        size = 10 ** torch.linspace(-1 - decades, -1, weight.shape[0]).view(-1, *[1] * (weight.ndim - 1))
        found[name] = torch.randn(weight.shape, generator=draw) * size
    return found


class Reference:
    """torch's AdamW in float64 with the same gradients."""

    def __init__(self, given: Mapping[str, Tensor], spec: OptimizerSpec = SPEC) -> None:
        self.weights = {name: torch.nn.Parameter(weight.double()) for name, weight in given.items()}
        groups = [
            {
                "params": [weight],
                "weight_decay": spec.weight_decay if weight.ndim > 1 else 0.0,
                "lr": 1e-3 * spec.learning_rate_factor(name, weight.ndim),
            }
            for name, weight in self.weights.items()
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(spec.beta1, spec.beta2), eps=spec.epsilon)

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        for name, weight in self.weights.items():
            weight.grad = gradients[name].double()
        self.optimizer.step()


FACTORS = LearningRateFactors(embedding=4.0, vectors=0.25)


@pytest.mark.parametrize("factors", [None, FACTORS])
def test_the_float32_optimizer_is_adamw(factors: LearningRateFactors | None) -> None:
    given = weights()
    spec = SPEC.model_copy(update={"learning_rate_factors": factors})
    trial, reference = OptimizerUnderTest(given, ALL_FLOAT32, spec), Reference(given, spec)
    for step in range(20):
        gradients = realistic_gradients(given, step)
        stored = trial.store(gradients)
        reference.step({name: trial.gradient(stored, name) for name in given})
        trial.step(gradients)
    for name in given:
        # 20 updates of about 1e-3 times the factor, each rounded to float32 near 1: 20 · 2^-24. The update itself is
        # accurate to 1e-6.
        torch.testing.assert_close(
            trial.weight(name).double(),
            reference.weights[name].data,
            rtol=0,
            atol=20 * (2**-24 + 4e-3 * 1e-6),
        )


def test_scales_have_room_for_weights_whose_learning_rate_is_multiplied() -> None:
    given = weights()
    spec = SPEC.model_copy(update={"learning_rate_factors": LearningRateFactors(embedding=1_000.0)})
    trial, reference = OptimizerUnderTest(given, PAPER, spec), Reference(given, spec)
    stored = trial.store(realistic_gradients(given, 0))
    reference.step({name: trial.gradient(stored, name) for name in given})
    trial.step(realistic_gradients(given, 0))
    for name in ("embedding", "matrix"):
        # The first update moves weights by 1e-3 times the factor, much more than float16's spacing.
        moved = (reference.weights[name].data - given[name].double()).norm()
        assert moved > 0.9 * given[name].numel() ** 0.5 * 1e-3 * 1_000.0
        assert (trial.weight(name).double() - reference.weights[name].data).norm() < 1e-2 * moved


def update_error(formats: StateFormats) -> float:
    """Relative L2 error of Adam's update m / (√v + ε) after its moments,
    averages over 30 steps, are stored once."""
    given = {"embedding": torch.zeros(512, 64), "matrix": torch.zeros(64, 128)}
    exact, trial = (
        OptimizerUnderTest(given, ALL_FLOAT32, NO_DECAY),
        OptimizerUnderTest(given, formats, NO_DECAY),
    )
    for step in range(30):
        exact.step(realistic_gradients(given, step))
    trial.optimizer.updates = exact.optimizer.updates
    for kind in ("first", "second"):
        _store_all(getattr(trial.optimizer, kind), getattr(exact.optimizer, kind), formats, kind == "second")
    return max(
        ((update_of(trial, name) - update_of(exact, name)).norm() / update_of(exact, name).norm()).item()
        for name in given
    )


def _store_all(into: StateBuffer, exact: StateBuffer, formats: StateFormats, is_second: bool) -> None:
    """Round exact values as an update does, with scales from their own amax."""
    format = into.format
    if format.scaled is ScaleGranularity.ROW:
        into.scale = scale_for(exact.codes.abs().amax(1), format.dtype)
    elif format.scaled is ScaleGranularity.TENSOR:
        into.scale = scale_for(exact.codes.abs().amax().expand(len(into.scale)), format.dtype)
    scale = into.scale[:, None] if format.scaled is ScaleGranularity.ROW else into.scale[0]
    drawn = uniform_noise(
        torch.arange(exact.codes.numel(), dtype=torch.int32).view_as(exact.codes), torch.tensor(0)
    )
    of_kind = drawn[2 if is_second else 1] if formats.stochastic else None
    into.codes.copy_(round_to_format(exact.codes / scale, format, of_kind, never_zero=is_second))


def update_of(trial: OptimizerUnderTest, name: str) -> Tensor:
    m, v = trial.number("first", name).double(), trial.number("second", name).double()
    made = trial.optimizer.updates
    return (m / (1 - 0.9**made)) / ((v / (1 - 0.95**made)).sqrt() + 1e-8)


@pytest.mark.parametrize(
    ("formats", "bar"),
    [
        # E4M3's spacing is 2^-3 to 2^-4 of a value. Stochastic rounding has an error of spacing / √6: 0.025
        # to 0.05, 0.036 on average.
        (PAPER, 5e-2),
        (BLOCK, 5e-2),
        # v enters by its root, so with half its error. Stochastic rounding has √2 times the error of rounding
        # to nearest.
        (ALL_FLOAT32._replace(second=StorageFormat(E4M3, ScaleGranularity.ROW)), 2.8e-2),
        (ALL_FLOAT32._replace(second=StorageFormat(E4M3, ScaleGranularity.ROW), stochastic=False), 2e-2),
        (ALL_FLOAT32._replace(second=StorageFormat(torch.float16, ScaleGranularity.TENSOR)), 1e-3),
    ],
)
def test_updates_are_close_to_those_of_exact_moments(formats: StateFormats, bar: float) -> None:
    assert update_error(formats) < bar


def test_a_second_moment_in_e4m3_with_one_scale_per_tensor_fails() -> None:
    assert update_error(E4M3_SECOND) > 0.2


def gradients_over_decades(step: int) -> dict[str, Tensor]:
    """Elements of very different magnitude next to each other in each block, each occasionally zero."""
    draw = torch.Generator().manual_seed(step)
    size = 10 ** torch.linspace(-6, 0, 128)
    seldom = torch.rand(64, 128, generator=draw) < 0.3
    return {"matrix": torch.randn(64, 128, generator=draw) * size * seldom}


@pytest.mark.parametrize("betas", [(0.9, 0.95), (0.9, 0.999), (0.95, 0.9)])
@pytest.mark.parametrize("formats", [ALL_FLOAT32, PAPER, BLOCK], ids=["float32", "paper", "block"])
def test_no_update_exceeds_the_bound_of_exact_moments(
    formats: StateFormats, betas: tuple[float, float]
) -> None:
    spec = OptimizerSpec(weight_decay=0.0, beta1=betas[0], beta2=betas[1])
    # Float32 master weights show the update itself.
    trial = OptimizerUnderTest({"matrix": torch.zeros(64, 128)}, formats._replace(master=FLOAT32), spec)
    for step in range(40):
        before = trial.weight("matrix").clone()
        trial.step(gradients_over_decades(step), learning_rate=1.0)
        moved = (trial.weight("matrix") - before).abs().max().item()
        # A difference of float32 weights near 10 is accurate to 1e-6.
        assert moved <= largest_update(*betas, step + 1) + 1e-5


def test_the_bound_is_the_cauchy_schwarz_bound() -> None:
    """The bound is reached by the gradients for which it is an equality: gₜ ∝ (β₁ / β₂)^(T - t)."""
    for beta1, beta2 in ((0.9, 0.95), (0.9, 0.999), (0.0, 0.9)):
        weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
        optimizer = torch.optim.AdamW([weight], lr=1.0, betas=(beta1, beta2), eps=1e-200, weight_decay=0.0)
        for step in range(1, 21):
            before = weight.item()
            weight.grad = torch.tensor((beta1 / beta2) ** (20 - step), dtype=torch.float64)
            optimizer.step()
        assert before - weight.item() == pytest.approx(largest_update(beta1, beta2, 20), rel=1e-5)


def stored_ratio(formats: StateFormats) -> float:
    """The largest m / √v that an update would use if it were not clamped."""
    trial = OptimizerUnderTest({"matrix": torch.zeros(64, 128)}, formats, NO_DECAY)
    for step in range(5):
        trial.step(gradients_over_decades(step))
    return update_of(trial, "matrix").abs().max().item()


def test_a_nonzero_second_moment_never_becomes_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = stored_ratio(ALL_FLOAT32)
    assert stored_ratio(BLOCK) < 4 * exact
    monkeypatch.setattr("trainwright_trainer.fp8.state.optimizer.SMALLEST", {E4M3: 0.0, torch.float16: 0.0})
    assert stored_ratio(BLOCK) > 20 * exact


@pytest.mark.parametrize(("formats", "follows"), [(PAPER, True), (BLOCK, True), (TO_NEAREST, False)])
def test_the_first_moment_converges_to_a_constant_gradient(formats: StateFormats, follows: bool) -> None:
    """With rounding to nearest, the average stops once a tenth of the difference is below half of E4M3's spacing."""
    given = {"matrix": torch.zeros(8, 128)}
    trial = OptimizerUnderTest(given, formats, NO_DECAY)
    for _ in range(80):
        trial.step({"matrix": torch.ones(8, 128)})
    # Stochastic rounding of 1,024 elements: 0.037 · √(1 / (1 - 0.9²)) / √1024 = 0.003.
    assert (trial.number("first", "matrix").mean().item() == pytest.approx(1.0, abs=0.02)) is follows


@pytest.mark.parametrize(
    ("formats", "follows"), [(PAPER, True), (BLOCK, True), (BLOCK._replace(stochastic=False), False)]
)
def test_the_second_moment_falls_with_the_gradients(formats: StateFormats, follows: bool) -> None:
    given = {"matrix": torch.zeros(8, 128)}
    trial = OptimizerUnderTest(given, formats, NO_DECAY)
    for step in range(140):
        trial.step({"matrix": torch.ones(8, 128) * (1.0 if step < 20 else 0.25)})
    # 0.95^120 = 0.002 of the old 1 is left. Stochastic rounding: 0.037 · √(1 / (1 - 0.95²)) / √1024 = 0.004
    # of 0.0625.
    assert (trial.number("second", "matrix").mean().item() == pytest.approx(0.0645, rel=0.03)) is follows


@pytest.mark.parametrize("formats", [PAPER, BLOCK])
def test_moments_rarely_become_zero(formats: StateFormats) -> None:
    given = weights()
    exact, trial = OptimizerUnderTest(given, ALL_FLOAT32), OptimizerUnderTest(given, formats)
    for step in range(30):
        exact.step(realistic_gradients(given, step))
    for kind in ("first", "second"):
        into, from_ = getattr(trial.optimizer, kind), getattr(exact.optimizer, kind)
        _store_all(into, from_, formats, kind == "second")
        flushed = (into.codes.float() == 0) & (from_.codes != 0)
        # E4M3 reaches down to 2^-18 of amax, and values of the smallest rows have a deviation of 2^-12 of it:
        # 2^-6 of them come close to zero, and a tenth of that in rows ten times as large: on average a
        # seventh of 2^-6 · 0.4.
        assert flushed.float().mean() < 1e-3


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(("formats", "moves"), [(PAPER, True), (TO_NEAREST, False)])
def test_updates_below_the_spacing_are_applied_on_average(formats: StateFormats, moves: bool) -> None:
    """1,000 updates of 1e-6 move weights of 0.05, where float16 has a spacing of 3e-5, by 1e-3."""
    given = {"matrix": torch.full((8, 128), 0.05)}
    trial = OptimizerUnderTest(given, formats, NO_DECAY)
    before = trial.weight("matrix")
    for _ in range(1_000):
        trial.step({"matrix": torch.ones(8, 128)}, learning_rate=1e-6)
    moved = (before - trial.weight("matrix")).mean().item()
    # Over 1,024 weights the mean of stochastic rounding is off by √(1000 · 3e-5 · 1e-6) / √1024 = 5e-6.
    assert (moved == pytest.approx(1e-3, rel=0.05)) is moves


def test_updates_lost_to_rounding_are_counted() -> None:
    given = {"matrix": torch.full((64, 128), 0.05)}
    lost = {
        name: OptimizerUnderTest(given, formats, NO_DECAY).step(
            {"matrix": torch.ones(64, 128)}, learning_rate=1e-6
        )
        for name, formats in {"nearest": TO_NEAREST, "dice": PAPER, "float32": ALL_FLOAT32}.items()
    }
    assert lost["nearest"] == 1.0
    # A fraction 1e-6 / spacing is rounded up: 3.3 %; of 8,192 weights 270 ± 16.
    assert 0.95 < lost["dice"] < 0.98
    assert lost["float32"] == 0.0


def test_stochastic_rounding_depends_on_seed_step_weight_and_element_only() -> None:
    elements = torch.arange(4_096, dtype=torch.int32)
    key, other = torch.tensor(7, dtype=torch.int32), torch.tensor(8, dtype=torch.int32)
    for kind, drawn in enumerate(uniform_noise(elements, key)):
        assert drawn.min() >= 0
        assert drawn.max() < 1
        # The mean of n uniform numbers has a deviation of 1 / √(12 n) = 0.0045; the mean of their squares, of
        # 0.0047.
        assert drawn.mean().item() == pytest.approx(0.5, abs=0.02)
        assert (drawn**2).mean().item() == pytest.approx(1 / 3, abs=0.02)
        assert not torch.equal(drawn, uniform_noise(elements, other)[kind])
        assert torch.equal(uniform_noise(elements[100:200], key)[kind], drawn[100:200])
    master, first, second = uniform_noise(elements, key)
    for one, another in ((master, first), (master, second), (first, second)):
        # The correlation of n pairs of independent numbers has a deviation of 1 / √n = 0.016.
        assert abs(torch.corrcoef(torch.stack((one, another)))[0, 1]) < 0.06


@pytest.mark.parametrize("dtype", [torch.float16, E4M3])
@pytest.mark.parametrize("value", [1.0 + 2**-12, -3.3, 1e-5, 2.0**-20 * 1.37, 400.3, 0.0])
def test_rounding_is_unbiased_and_gives_a_neighboring_value(value: float, dtype: torch.dtype) -> None:
    count = 2**13
    every_draw = torch.arange(count, dtype=torch.float32) / count
    rounded = stochastic_round(every_draw, torch.full((count,), value), dtype).float()
    bits, lowest = (10, 2.0**-24) if dtype is torch.float16 else (3, 2.0**-9)
    spacing = max(2.0 ** (math.floor(math.log2(abs(value) or 1)) - bits), lowest)
    assert (rounded - value).abs().max() < spacing
    assert rounded.double().mean().item() == pytest.approx(value, abs=spacing / count)


def test_layout_and_buckets_change_no_bit() -> None:
    """The same weights get the same values in one bucket or several, alone or with others."""
    given = weights()
    together = OptimizerUnderTest(given, PAPER)
    alone = {name: OptimizerUnderTest({name: weight}, PAPER) for name, weight in given.items()}
    for step in range(5):
        gradients = realistic_gradients(given, step)
        together.step(gradients)
        for name, trial in alone.items():
            trial.step({name: gradients[name]})
    for name, trial in alone.items():
        for kind in ("master", "first", "second"):
            assert torch.equal(together.number(kind, name), trial.number(kind, name)), (name, kind)


def test_state_takes_six_bytes_per_parameter() -> None:
    """This includes the gradient; each row's weight index adds 0.03."""
    given = {"matrix": torch.zeros(1_024, 1_024)}
    for formats, bar in ((PAPER, 6.1), (BLOCK, 5.2)):
        optimizer = OptimizerUnderTest(given, formats).optimizer
        held = [value for value in vars(optimizer).values() if isinstance(value, Tensor)]
        for kind in (optimizer.master, optimizer.first, optimizer.second):
            held += [kind.codes, kind.scale, kind.amax]
        gradient_bytes = 1
        assert sum(item.nbytes for item in held) / 2**20 + gradient_bytes < bar


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("formats", [ALL_FLOAT32, PAPER, BLOCK], ids=["float32", "paper", "block"])
def test_the_compiled_update_is_the_eager_one_bit_for_bit(
    formats: StateFormats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced as for a GPU, where many chunks share one compilation,
    and executed with the same operations as here."""
    given = weights()
    monkeypatch.setitem(optimizer_module.CHUNK_ROWS, "cpu", 7)
    trials = [OptimizerUnderTest(given, formats)]
    monkeypatch.setattr(
        optimizer_module,
        "fuse_on_gpu",
        lambda function, device: torch.compile(function, dynamic=True, backend="aot_eager"),
    )
    trials.append(OptimizerUnderTest(given, formats))
    for trial in trials:
        for step in range(2):
            trial.step(realistic_gradients(given, step))
    eager, compiled = (trial.optimizer for trial in trials)
    for kind in ("master", "first", "second"):
        ours, theirs = getattr(compiled, kind), getattr(eager, kind)
        assert torch.equal(ours.scale, theirs.scale)
        assert torch.equal(ours.amax, theirs.amax)
        assert torch.equal(ours.codes.view(torch.uint8), theirs.codes.view(torch.uint8))
