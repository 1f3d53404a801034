"""Complete FP8 trainings on a CPU: they match BF16, on any number of ranks, and resume bit for bit."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tests.selection import partly_slow
from tests.trainer.fp8.adamw_formats import PAPER
from tests.trainer.fp8.state.test_gradients import counted_bytes
from tests.trainer.jobs import build_here, events, losses, resume_from, train_here, write_job
from tests.trainer.ranks import on_ranks
from trainwright.contracts.job_spec import output_folder
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.compute.formats import E4M3
from trainwright_trainer.fp8.compute.weight import Weight
from trainwright_trainer.fp8.state.optimizer import ScaleGranularity, StateFormats, StorageFormat
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import build
from trainwright_trainer.training.loop import train

MODEL = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2}
LEARNING_RATE = 3e-3
STEPS = 20
LEVELS = ["O1", "O2", "O3"]


def fp8(**recipe: Any) -> dict[str, Any]:
    return {"kind": "fp8", "fp8": recipe}


def make_job(folder: Path, data: Path, ranks: int = 1, **sections: Any) -> Path:
    given: dict[str, Any] = {
        "model": MODEL,
        "batch": {"sequence_tokens": 32, "micro_sequences": 1, "global_sequences": 8},
        "optimizer": {"learning_rate": LEARNING_RATE},
        "schedule": {"steps": STEPS, "warmup_steps": 4},
    }
    path = write_job(folder, data, ranks, **given | sections)
    output_folder(path).mkdir(exist_ok=True)
    return path


class Trained(NamedTuple):
    """The state of one rank after a training."""

    weights: str
    """Digest of the layers' FP8 weights."""

    state: str
    """Digest of this rank's gradients and state."""


def _train(mesh: Mesh, job_file: Path) -> Trained:
    training = build(read_job(job_file), job_file, mesh)
    train(training)
    updater = training.engine.updater
    assert isinstance(updater, FP8Updater)
    weights = [module.codes for module in training.engine.model.modules() if isinstance(module, Weight)]
    optimizer = updater.optimizer
    kept = [
        updater.gradients.codes,
        *(kind.codes for kind in (optimizer.master, optimizer.first, optimizer.second)),
    ]
    return Trained(_digest(weights), _digest(kept))


def _digest(tensors: list[torch.Tensor]) -> str:
    content = b"".join(tensor.contiguous().view(torch.uint8).numpy().tobytes() for tensor in tensors)
    return hashlib.sha256(content).hexdigest()


def rounding_bound(job_file: Path) -> float:
    """Upper bound on the difference in loss after ``STEPS`` steps that differ only in the rounding of
    gradients.

    Gradients rounded twice and once differ by ε = √2 · 10^(-25/20) of their norm (the reduction keeps 25 dB).
    So does Adam's update, whose elements are about the learning rate η: it moves by η ε √P in a random
    direction, and 1 / √P of it lies along the gradient. Steps add up as squares, and three deviations are
    allowed: 3 η ε √steps · ‖g‖.
    """
    norm: float = max(event["values"]["grad_norm"] for event in events(job_file, "step"))
    return float(3 * LEARNING_RATE * 2**0.5 * 10 ** (-25 / 20) * STEPS**0.5 * norm)


def distance(one: Path, other: Path) -> float:
    pairs = list(zip(losses(one), losses(other), strict=True))
    assert len(pairs) == STEPS
    return max(abs(a - b) for a, b in pairs)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("level", ["O1", "O3"])
def test_ranks_hold_equal_weights_and_learn_what_one_process_learns(
    tmp_path: Path, data: Path, level: str, ranks: int
) -> None:
    alone = make_job(tmp_path / "alone", data, precision=fp8(level=level))
    on_ranks(1, _train, alone)
    together = make_job(tmp_path / "together", data, ranks, precision=fp8(level=level))
    results = on_ranks(ranks, _train, together)
    assert len({result.weights for result in results}) == 1
    # At O1 all ranks have the full state; at O3 each has its own tensors.
    assert len({result.state for result in results}) == (1 if level == "O1" else ranks)
    assert distance(alone, together) < rounding_bound(alone)


@pytest.mark.slow(target="layouts")
def test_the_bound_is_tight_enough_to_detect_a_wrong_learning_rate(tmp_path: Path, data: Path) -> None:
    right = make_job(tmp_path / "right", data, precision=fp8(level="O2"))
    wrong = make_job(
        tmp_path / "wrong", data, precision=fp8(level="O2"), optimizer={"learning_rate": LEARNING_RATE * 1.1}
    )
    for job_file in (right, wrong):
        train_here(job_file)
    assert distance(right, wrong) > rounding_bound(right)


BLOCKS: dict[str, Any] = {
    "model": {"layers": 1, "width": 128, "heads": 4, "kv_heads": 4, "feed_forward": 256},
    "batch": {"sequence_tokens": 32, "micro_sequences": 4, "global_sequences": 8},
}
"""Shapes that are divisible by blocks of 128."""

RECIPES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"level": "O1"}, {}),
    ({"level": "O2"}, {}),
    ({"level": "O2", "moments": "block", "amax": "delayed"}, {}),
    ({"level": "O2", "scaling": "row", "accumulation": "fp32"}, {}),
    ({"level": "O2", "scaling": "block"}, BLOCKS),
    ({"level": "O3"}, {}),
    ({"level": "O3", "amax": "delayed", "bf16_first_layers": 1}, {}),
]
"""Both levels with state in 8 bits, with the variations that the FP8 settings allow."""


def train_half(folder: Path, data: Path, **sections: Any) -> tuple[Path, Path]:
    """A run of twice ``STEPS`` steps and its checkpoint from the middle."""
    sections = {
        "schedule": {"steps": 2 * STEPS, "warmup_steps": 4},
        "checkpoint": {"every_steps": STEPS},
    } | sections
    job_file = make_job(folder, data, **sections)
    train_here(job_file)
    return job_file, output_folder(job_file) / "checkpoints" / f"step-{STEPS}"


def resumed_job(folder: Path, data: Path, checkpoint: Path, **sections: Any) -> Path:
    sections = {"schedule": {"steps": 2 * STEPS, "warmup_steps": 4}} | sections
    return make_job(folder, data, job=resume_from(checkpoint, folder), **sections)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    ("recipe", "shapes"),
    RECIPES,
    ids=lambda case: "-".join(map(str, case.values()))[:40],
)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    tmp_path: Path, data: Path, recipe: dict[str, Any], shapes: dict[str, Any]
) -> None:
    sections = {"precision": fp8(**recipe)} | shapes
    straight, checkpoint = train_half(tmp_path / "straight", data, **sections)
    resumed = resumed_job(tmp_path / "resumed", data, checkpoint, **sections)
    train_here(resumed)
    assert losses(resumed) == losses(straight)[STEPS:]


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("level", ["O2", "O3"])
def test_moments_and_the_number_of_updates_are_restored(tmp_path: Path, data: Path, level: str) -> None:
    """Negative controls of the test above."""
    precision = fp8(level=level)
    straight, checkpoint = train_half(tmp_path / "straight", data, precision=precision)

    forgetful = resumed_job(tmp_path / "forgetful", data, checkpoint, precision=precision)
    training = build_here(forgetful)
    updater = training.engine.updater
    assert isinstance(updater, FP8Updater)
    updater.optimizer.first.codes.view(torch.uint8).zero_()
    train(training)
    assert losses(forgetful) != losses(straight)[STEPS:]

    miscounted = resumed_job(tmp_path / "miscounted", data, checkpoint, precision=precision)
    training = build_here(miscounted)
    updater = training.engine.updater
    assert isinstance(updater, FP8Updater)
    updater.optimizer.updates -= 1
    train(training)
    assert losses(miscounted)[0] == losses(straight)[STEPS], "the weights are right"
    assert losses(miscounted) != losses(straight)[STEPS:]


@pytest.mark.slow(target="layouts")
def test_headroom_is_restored(tmp_path: Path, data: Path) -> None:
    job_file = make_job(tmp_path / "first", data, precision=fp8(), checkpoint={"every_steps": STEPS})
    training = build_here(job_file)
    updater = training.engine.updater
    assert isinstance(updater, FP8Updater)
    updater.gradients.headroom.factor.copy_(torch.linspace(0.1, 0.2, len(updater.layout.slots)))
    train(training)
    left = updater.gradients.headroom.factor.clone()
    checkpoint = output_folder(job_file) / "checkpoints" / f"step-{STEPS}"
    resumed = build_here(resumed_job(tmp_path / "second", data, checkpoint, precision=fp8()))
    again = resumed.engine.updater
    assert isinstance(again, FP8Updater)
    assert torch.equal(again.gradients.headroom.factor, left)
    assert left.max() < 0.21


@pytest.mark.parametrize(
    ("spoilt", "named"),
    [
        ("norm.weight", "norm.weight:gradient"),
        ("layers.0.attention.query.weight", "layers.0.attention.query.weight:gradient"),
    ],
)
def test_the_first_non_finite_tensor_is_named(tmp_path: Path, data: Path, spoilt: str, named: str) -> None:
    """An infinite gradient makes everything computed after it non-finite;
    a weight's own gradient is where it started."""
    training = build_here(make_job(tmp_path, data, precision=fp8()))
    engine = training.engine
    handle = dict(engine.model.named_modules())[spoilt.removesuffix(".weight")].stored_weight.handle
    handle.register_hook(lambda gradient: torch.full_like(gradient, torch.inf))
    numbers = engine.step(training.loader.micro_batches(1), 1e-3, StepTimer(torch.device("cpu")))
    assert not numbers.finite
    assert numbers.non_finite_tensor == named


def test_a_model_takes_no_memory_besides_its_state(tmp_path: Path, data: Path) -> None:
    training = build_here(make_job(tmp_path, data, precision=fp8()))
    model, updater = training.engine.model, training.engine.updater
    assert isinstance(updater, FP8Updater)
    assert all(handle.untyped_storage().nbytes() <= 4 for handle in model.parameters())
    state = {updater.optimizer.master.codes.untyped_storage().data_ptr()}
    assert {
        module.codes.untyped_storage().data_ptr() for module in model.modules() if isinstance(module, Weight)
    } == state


@pytest.mark.parametrize(
    ("level", "before", "after"),
    partly_slow(
        [(level, *ranks) for level in ("O2", "O3") for ranks in ((1, 2), (4, 2), (2, 1))],
        [],
    ),
)
def test_a_run_continues_with_another_number_of_ranks(
    tmp_path: Path, data: Path, level: str, before: int, after: int
) -> None:
    sections: dict[str, Any] = {
        "precision": fp8(level=level),
        "schedule": {"steps": 2 * STEPS, "warmup_steps": 4},
        "checkpoint": {"every_steps": STEPS},
    }
    straight = make_job(tmp_path / "straight", data, before, **sections)
    on_ranks(before, _train, straight)
    point = resume_from(output_folder(straight) / "checkpoints" / f"step-{STEPS}", tmp_path / "resumed")
    resumed = make_job(tmp_path / "resumed", data, after, job=point, **sections)
    on_ranks(after, _train, resumed)
    apart = [abs(a - b) for a, b in zip(losses(resumed), losses(straight)[STEPS:], strict=True)]
    # The first step has the same weights to the bit; its loss is summed from other shares of the batch.
    assert apart[0] < 1e-5
    assert 0 < max(apart) < rounding_bound(straight)


def _bytes_of_weights(mesh: Mesh, job_file: Path) -> float:
    training = build(read_job(job_file), job_file, mesh)
    updater = training.engine.updater
    assert isinstance(updater, FP8Updater)
    with counted_bytes() as sent:
        updater.update(torch.tensor(0.0))
    return sum(sent)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("ranks", [2, 4])
def test_weights_are_sent_in_half_of_the_bytes_of_bfloat16(tmp_path: Path, data: Path, ranks: int) -> None:
    model = {"layers": 4, "width": 256, "heads": 4}
    job_file = make_job(tmp_path, data, ranks, model=model, precision=fp8(level="O3"))
    sent = sum(on_ranks(ranks, _bytes_of_weights, job_file))
    in_bf16 = (ranks - 1) * 2 * (257 * 256 + 4 * (4 * 256 * 256 + 3 * 256 * 704 + 2 * 256) + 256)
    assert sent / in_bf16 <= 0.51


PARITY: dict[str, Any] = {
    "batch": {"sequence_tokens": 32, "micro_sequences": 8, "global_sequences": 8},
    "schedule": {"steps": 300, "warmup_steps": 20},
    "validation": {"every_steps": 300, "sequences": 64},
    "checkpoint": {"every_steps": 300},
}
PARITY_BAR = 0.03
"""Two BF16 runs of a tiny model with one seed differ by up to 1.3 % if they only sum in another order.
``make bench ONLY=parity`` measures more precisely."""


def validation_loss(folder: Path, data: Path, precision: dict[str, Any]) -> float:
    job_file = make_job(folder, data, precision=precision, **PARITY)
    train_here(job_file)
    (measured,) = events(job_file, "validation")
    return float(measured["values"]["validation_loss"])


@pytest.fixture(scope="module")
def of_bf16(tmp_path_factory: pytest.TempPathFactory, data: Path) -> float:
    return validation_loss(tmp_path_factory.mktemp("bf16"), data, {"kind": "bf16"})


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("level", LEVELS)
def test_fp8_learns_what_bf16_learns(tmp_path: Path, data: Path, of_bf16: float, level: str) -> None:
    assert validation_loss(tmp_path, data, fp8(level=level)) < of_bf16 * (1 + PARITY_BAR)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    "formats",
    [
        PAPER._replace(master=StorageFormat(E4M3, ScaleGranularity.TENSOR), stochastic=False),
        PAPER._replace(second=StorageFormat(torch.float16, ScaleGranularity.NOTHING), clamped=False),
    ],
    ids=["master weights in FP8", "second moment without a scale, its updates not clamped"],
)
def test_state_in_too_few_bits_shows_in_the_loss(
    tmp_path: Path, data: Path, of_bf16: float, formats: StateFormats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwright_trainer.fp8.state.updater.state_formats", lambda optimizer, fp8: formats)
    assert validation_loss(tmp_path, data, fp8(level="O2")) > of_bf16 * (1 + PARITY_BAR)


@pytest.mark.slow(target="layouts")
def test_the_fp8_panels_metrics_are_written_every_few_steps(tmp_path: Path, data: Path) -> None:
    job_file = make_job(tmp_path, data, precision=fp8(observe_every_steps=5))
    train_here(job_file)
    observed = [event for event in events(job_file, "step") if "fp8_underflow" in event["values"]]
    assert [event["step"] for event in observed] == [1, 5, 10, 15, 20]
    values = observed[-1]["values"]
    tensor = "layers.1.feed_forward.down.weight"
    for kind in ("weight", "gradient", "input", "output_gradient"):
        assert values[f"fp8_amax/{tensor}:{kind}"] > 0
        assert values[f"fp8_scale/{tensor}:{kind}"] > 0
    # Of weights around 0.02 with updates of about 1e-3, few are lost to float16's spacing of 1e-5.
    assert 0 < values["fp8_lost_updates"] < 0.2
    assert values["fp8_saturated"] == 0
    assert values["fp8_smallest_headroom"] == 1
    assert all(event["values"]["skipped_steps"] == 0 for event in events(job_file, "step"))


@pytest.mark.slow(target="layouts")
def test_updates_in_the_backward_pass_equal_those_after_it(tmp_path: Path, data: Path) -> None:
    sections: dict[str, Any] = {
        "batch": {"sequence_tokens": 32, "micro_sequences": 8, "global_sequences": 8},
        "optimizer": {"learning_rate": LEARNING_RATE, "clip_norm": None},
    }
    kept = make_job(tmp_path / "kept", data, precision=fp8(skip_limit=0), **sections)
    updates_in_backward = make_job(
        tmp_path / "released", data, precision=fp8(skip_limit=0, optimizer_in_backward=True), **sections
    )
    trainings = [train_here(job_file) for job_file in (kept, updates_in_backward)]
    assert losses(updates_in_backward) == losses(kept)
    norms = [
        [event["values"]["grad_norm"] for event in events(job, "step")] for job in (kept, updates_in_backward)
    ]
    assert norms[0] == norms[1]
    bytes_kept, bytes_released = (training.engine.updater.gradients.codes.nbytes for training in trainings)
    assert bytes_released == 0 < bytes_kept


def test_validation_does_not_change_the_scales(tmp_path: Path, data: Path) -> None:
    """A validation split with larger activations
    than the training split must not enter any step's history."""
    job_file = make_job(tmp_path, data, precision=fp8(amax="delayed"))

    def input_amaxes(validated: bool) -> dict[str, float]:
        training = build_here(job_file)
        if validated:
            training.engine.mean_loss(training.loader.micro_batches(2))
        training.engine.step(training.loader.micro_batches(1), 1e-3, StepTimer(torch.device("cpu")))
        metrics = training.engine.updater.metrics(1)
        return {name: metrics[name] for name in metrics if name.startswith("fp8_amax") and "input" in name}

    amaxes = input_amaxes(validated=True)
    assert amaxes == input_amaxes(validated=False) and min(amaxes.values()) > 0
