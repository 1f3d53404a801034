"""A model in stages learns what a whole one learns: same losses, gradients and weights, whatever the schedule."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch._inductor.config
from torch import Tensor, nn

from tests.trainer.jobs import build_here, events, losses, resume_from, write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.parallelism_spec import Degrees, PipelineSchedule
from trainwright_trainer.build import build
from trainwright_trainer.data.shards import TokenStream
from trainwright_trainer.ends import read_job
from trainwright_trainer.loop import train
from trainwright_trainer.mesh import Mesh, RankLostError
from trainwright_trainer.model import loss as loss_module
from trainwright_trainer.model.transformer import Block, Transformer
from trainwright_trainer.observe.throughput import StepClock
from trainwright_trainer.optim.replicated import ReplicatedAdamW
from trainwright_trainer.parallel.data.replicate import GradientBuckets
from trainwright_trainer.parallel.pipeline import passes as pipeline_module
from trainwright_trainer.parallel.pipeline.deferred_linear import DeferredLinear, _Linear
from trainwright_trainer.parallel.pipeline.passes import PipelinePasses
from trainwright_trainer.parallel.pipeline.schedules import RunningStage, as_raised
from trainwright_trainer.parallel.pipeline.stages import Stages, cut
from trainwright_trainer.parts import whole_parts
from trainwright_trainer.passes import Rounds

STEPS = 5
ROUNDS = 8
MODEL = {"layers": 8, "width": 32, "heads": 4, "kv_heads": 2, "tied_embeddings": False}
TIED = {"model": MODEL | {"tied_embeddings": True}}
SECTIONS: dict[str, Any] = {
    "model": MODEL,
    "batch": {"sequence_tokens": 16, "micro_sequences": 1, "global_sequences": ROUNDS},
    # Never reached: a norm that is summed over ranks has another last bit, and with it all that is clipped by it.
    "optimizer": {"learning_rate": 3e-3, "clip_norm": 1e3},
    "schedule": {"steps": STEPS, "warmup_steps": 1},
    "validation": {"every_steps": STEPS, "sequences": 7},
    "checkpoint": {"every_steps": STEPS},
}

ONE_F_ONE_B = {"schedule": "1f1b"}
INTERLEAVED = {"schedule": "interleaved", "stages": (1, 3, 2, 2)}
INTERLEAVED_ZERO_BUBBLE = {"schedule": "interleaved_zero_bubble", "stages": (1, 3, 2, 2)}
ZBV = {"schedule": "zbv", "stages": (1, 3, 2, 2)}

Fault = Callable[[], None]


class Learned(NamedTuple):
    """What a rank has after its last step."""

    weights: dict[str, Tensor]
    gradients: dict[str, Tensor]
    reads: int
    """How often it asked for sequences."""


def learn(mesh: Mesh, jobs: list[Path], fault: Fault | None = None) -> list[Learned]:
    """Train each job on this rank."""
    torch._inductor.config.compile_threads = 1  # a rank's process may have no children
    if fault is not None:
        fault()
    return [_learn(mesh, job_file) for job_file in jobs]


def _learn(mesh: Mesh, job_file: Path) -> Learned:
    reads = [0]
    read = TokenStream.read

    def counted(stream: TokenStream, *arguments: Any) -> Any:
        reads[0] += 1
        return read(stream, *arguments)

    TokenStream.read = counted  # type: ignore[method-assign]
    output_folder(job_file).mkdir(exist_ok=True)
    training = build(read_job(job_file), job_file, mesh)
    train(training)
    TokenStream.read = read  # type: ignore[method-assign]
    named = dict(training.engine.model.named_parameters())
    return Learned(
        {name: weight.detach().clone() for name, weight in named.items()},
        {name: weight.grad.clone() for name, weight in named.items() if weight.grad is not None},
        reads[0],
    )


def job(
    folder: Path, data: Path, ranks: int = 1, parallelism: dict[str, Any] | None = None, **sections: Any
) -> Path:
    return write_job(folder, data, ranks=ranks, parallelism=parallelism or {}, **(SECTIONS | sections))


def staged(folder: Path, data: Path, degrees: Degrees, parallelism: dict[str, Any], **sections: Any) -> Path:
    return job(folder, data, degrees.ranks, {"pipeline": degrees.pipeline} | parallelism, **sections)


def validation(job_file: Path) -> list[float]:
    return [event["values"]["validation_loss"] for event in events(job_file, "validation")]


def run(
    degrees: Degrees, jobs: list[Path], fault: Fault | None = None
) -> list[tuple[Path, tuple[Learned, ...]]]:
    """Train ``jobs`` one after the other; returns each with what its ranks learned."""
    by_rank = on_mesh(degrees, learn, jobs, fault)
    return list(zip(jobs, zip(*by_rank, strict=True), strict=True))


def assert_equal(job_file: Path, ranks: tuple[Learned, ...], like: Path, whole: Learned) -> None:
    """Losses, gradients and weights are the same bits."""
    name = job_file.parent.name
    assert losses(job_file) == losses(like), name
    assert validation(job_file) == validation(like), name
    assert {weight for rank in ranks for weight in rank.weights} == set(whole.weights), name
    for rank in ranks:
        for weight, value in rank.weights.items():
            assert torch.equal(value, whole.weights[weight]), f"{name}: {weight}"
            assert torch.equal(rank.gradients[weight], whole.gradients[weight]), (
                f"{name}: gradient of {weight}"
            )


def assert_close(job_file: Path, like: Path) -> None:
    """Losses differ by what the order of float32 sums does.

    A gradient is a sum of fewer than 2^8 terms here (8 micro batches of 16 tokens, over 2 ranks or 2 places of a tied
    weight), so that another order moves it by less than 2^8 · 2^-24 = 2^-16 of its terms. AdamW moves a weight by the
    learning rate times a ratio of gradients, which is off by as much; so is what an update does to the loss, at most
    a tenth of it here. Five updates: 5 · 0.1 · 2^-16 of the loss.
    """
    assert losses(job_file) == pytest.approx(losses(like), rel=0.5 * 2**-16)
    assert validation(job_file) == pytest.approx(validation(like), rel=0.5 * 2**-16)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Learned]]:
    """Trains a job in one process, once a module."""
    done: dict[str, tuple[Path, Learned]] = {}

    def given(**sections: Any) -> tuple[Path, Learned]:
        key = repr(sections)
        if key not in done:
            job_file = job(tmp_path_factory.mktemp("whole"), data, **sections)
            done[key] = job_file, on_mesh(Degrees(), learn, [job_file])[0][0]
        return done[key]

    return given


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_stages_on_two_ranks_equal_the_whole_model_bit_for_bit(
    tmp_path: Path, data: Path, whole: Callable[..., tuple[Path, Learned]], kind: str
) -> None:
    """Each weight's gradient is the sum over the same micro batches in the same order, by the same products."""
    precision = {"kind": kind}
    like, learned = whole(precision=precision)
    two = Degrees(pipeline=2)
    layouts = [
        ONE_F_ONE_B,
        ONE_F_ONE_B | {"stages": (5, 3)},
        INTERLEAVED,
        INTERLEAVED_ZERO_BUBBLE,
        ZBV,
    ]
    jobs = [
        staged(tmp_path / f"{number}", data, two, layout, precision=precision)
        for number, layout in enumerate(layouts)
    ]
    for job_file, ranks in run(two, jobs):
        assert_equal(job_file, ranks, like, learned)


def test_stages_on_four_ranks_equal_the_whole_model_and_ranks_between_the_ends_read_nothing(
    tmp_path: Path, data: Path, whole: Callable[..., tuple[Path, Learned]]
) -> None:
    like, learned = whole(precision={"kind": "fp32"})
    four = Degrees(pipeline=4)
    uneven = staged(tmp_path / "uneven", data, four, ONE_F_ONE_B | {"stages": (1, 3, 2, 2)})
    v = staged(tmp_path / "v", data, four, {"schedule": "zbv"})
    tied = staged(tmp_path / "tied", data, four, ONE_F_ONE_B, **TIED)
    results = dict(run(four, [uneven, v, tied]))
    assert_equal(uneven, results[uneven], like, learned)
    assert_equal(v, results[v], like, learned)
    assert_close(tied, whole(**TIED)[0])
    assert [rank.reads > 0 for rank in results[uneven]] == [True, False, False, True]
    assert [rank.reads > 0 for rank in results[v]] == [True, False, False, False]


def test_two_pipelines_equal_two_whole_models_bit_for_bit(
    tmp_path: Path, data: Path, whole: Callable[..., tuple[Path, Learned]]
) -> None:
    """Two data ranks add two numbers, in whatever order; with one process only rounding differs."""
    pairs, four = Degrees(replicas=2), Degrees(pipeline=2, replicas=2)
    plain = job(tmp_path / "plain", data, ranks=2)
    like, (learned, _) = run(pairs, [plain])[0]
    untied = [
        staged(tmp_path / layout["schedule"], data, four, layout)
        for layout in (ONE_F_ONE_B, INTERLEAVED, INTERLEAVED_ZERO_BUBBLE, ZBV)
    ]
    tied = staged(tmp_path / "tied", data, four, ONE_F_ONE_B, **TIED)
    for job_file, ranks in run(four, [*untied, tied]):
        if job_file == tied:
            assert_close(tied, whole(**TIED)[0])
        else:
            assert_equal(job_file, ranks, like, learned)
            assert_close(job_file, whole(precision={"kind": "fp32"})[0])


def test_tied_embeddings_move_alike_at_both_ends(
    tmp_path: Path, data: Path, whole: Callable[..., tuple[Path, Learned]]
) -> None:
    """In one process each backward pass adds both places' gradients at once; here each place is summed by itself."""
    like, _ = whole(**TIED)
    two = Degrees(pipeline=2)
    jobs = [
        staged(tmp_path / layout["schedule"], data, two, layout, **TIED)
        for layout in (ONE_F_ONE_B, INTERLEAVED, INTERLEAVED_ZERO_BUBBLE, ZBV)
    ]
    for job_file, ranks in run(two, jobs):
        assert_close(job_file, like)
        copies = [rank.weights["embedding.weight"] for rank in ranks if "embedding.weight" in rank.weights]
        assert all(torch.equal(copies[0], copy) for copy in copies)
        assert len(copies) == (1 if "zbv" in str(job_file) else 2)


def test_ranks_between_the_places_of_a_tied_weight_make_the_same_groups(tmp_path: Path, data: Path) -> None:
    """torch names a group by how many its maker has: ranks with unequal numbers of them wait for each other for ever."""
    between = Degrees(pipeline=4, replicas=2)
    one = staged(tmp_path, data, between, ONE_F_ONE_B, **TIED | {"schedule": {"steps": 1, "warmup_steps": 0}})
    ((_, ranks),) = run(between, [one])
    copies = [rank.weights["embedding.weight"] for rank in ranks if "embedding.weight" in rank.weights]
    assert len(copies) == 4
    assert all(torch.equal(copies[0], copy) for copy in copies)


def _keep_tied_gradients_apart() -> None:
    PipelinePasses._complete_tied = (  # type: ignore[method-assign]
        lambda self: self._updater.complete(["embedding.weight"]) if self._tied else None
    )


def _listen_to_hooks() -> None:
    """Reduce when autograd says that a weight has its gradient, as without a pipeline."""
    GradientBuckets.clear = _clear_and_listen  # type: ignore[method-assign]
    ReplicatedAdamW.complete = lambda self, names: None  # type: ignore[method-assign]


_clear = GradientBuckets.clear


def _clear_and_listen(self: GradientBuckets) -> None:
    _clear(self)
    self.send_as_ready()


def _complete_with_input_gradients() -> None:
    """Reduce when the last input gradient of a stage is there, without waiting for weight gradients."""
    backward, complete = RunningStage.backward_one_chunk, GradientBuckets.complete

    def count_now(self: RunningStage, chunk: int, loss: Any, full: bool, last: bool = False) -> None:
        backward(self, chunk, loss, full, last)
        if not full:
            self._has_weight_gradients()

    def send_at_once(self: GradientBuckets, weights: Any) -> None:
        complete(self, weights)
        for work in self._works:
            work.wait()

    RunningStage.backward_one_chunk = (  # type: ignore[method-assign]
        lambda self, chunk, loss=None, full_backward=True, last_backward=False: count_now(
            self, chunk, loss, full_backward, last_backward
        )
    )
    RunningStage.backward_weight_one_chunk = (  # type: ignore[method-assign]
        lambda self, chunk, last_backward=False: self.dw_runner.pop(chunk)()
    )
    GradientBuckets.complete = send_at_once  # type: ignore[method-assign]


def _drop_an_activation() -> None:
    """What the third micro batch sends forwards never leaves, and nobody waits for it."""
    send, receive = RunningStage.get_fwd_send_ops, RunningStage.get_fwd_recv_ops

    def dropped(self: RunningStage, chunk: int) -> Any:
        return [] if chunk == 2 else send(self, chunk)

    def not_waited_for(self: RunningStage, chunk: int) -> Any:
        operations = receive(self, chunk)
        for operation in operations if chunk == 2 else ():
            operation.tensor.detach().zero_()
        return [] if chunk == 2 else operations

    RunningStage.get_fwd_send_ops = dropped  # type: ignore[method-assign]
    RunningStage.get_fwd_recv_ops = not_waited_for  # type: ignore[method-assign]


def _misroute_gradients() -> None:
    """Each gradient that goes backwards is that of the micro batch before."""
    send = RunningStage.get_bwd_send_ops
    before: dict[int, Tensor] = {}

    def late(self: RunningStage, chunk: int) -> Any:
        operations = send(self, chunk)
        for operation in operations:
            before[chunk] = operation.tensor
            operation.tensor = before.get(chunk - 1, operation.tensor)
        return operations

    RunningStage.get_bwd_send_ops = late  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("layout", "replicas", "sections", "fault"),
    [
        (ONE_F_ONE_B, 1, TIED, _keep_tied_gradients_apart),
        (ZBV, 2, {}, _complete_with_input_gradients),
        (ONE_F_ONE_B, 1, {}, _drop_an_activation),
        (INTERLEAVED, 1, {}, _misroute_gradients),
    ],
    ids=["tied gradients apart", "reduced too early", "activation dropped", "gradient misrouted"],
)
def test_a_planted_fault_changes_the_losses(
    tmp_path: Path,
    data: Path,
    whole: Callable[..., tuple[Path, Learned]],
    layout: dict[str, Any],
    replicas: int,
    sections: dict[str, Any],
    fault: Fault,
) -> None:
    degrees = Degrees(pipeline=2, replicas=replicas)
    job_file = staged(tmp_path / "faulty", data, degrees, layout, **sections)
    run(degrees, [job_file], fault)
    with pytest.raises(AssertionError):
        assert_close(job_file, whole(**(sections or {"precision": {"kind": "fp32"}}))[0])


def test_hooks_would_miss_weights_under_a_zero_bubble_schedule(tmp_path: Path, data: Path) -> None:
    """Negative control: autograd tells of norms and embeddings only, and the step ends without the other gradients."""
    degrees = Degrees(pipeline=2, replicas=2)
    with pytest.raises(AssertionError, match="a weight got no gradient"):
        run(degrees, [staged(tmp_path, data, degrees, ZBV)], _listen_to_hooks)


def test_a_checkpoint_of_any_split_goes_on_in_any_other_and_in_one_process(
    tmp_path: Path, data: Path
) -> None:
    """Each leg makes two steps more from the checkpoint of the one before; together they are one straight run."""
    legs: list[tuple[Degrees, dict[str, Any]]] = [
        (Degrees(pipeline=2), ONE_F_ONE_B | {"stages": (5, 3)}),
        (Degrees(pipeline=2), ZBV),
        (Degrees(pipeline=4), ONE_F_ONE_B | {"stages": (1, 3, 2, 2)}),
        (Degrees(), {}),
        (Degrees(pipeline=2), INTERLEAVED_ZERO_BUBBLE),
    ]
    every = {"checkpoint": {"every_steps": 2}, "validation": {"every_steps": 100, "sequences": 1}}
    straight = job(tmp_path / "straight", data, schedule=_steps(2 * len(legs)), **every)
    ((_, (learned,)),) = run(Degrees(), [straight])
    seen: list[float] = []
    last: tuple[Learned, ...] = ()
    for number, (degrees, layout) in enumerate(legs):
        folder = tmp_path / f"leg-{number}"
        point = {}
        if number:
            before = tmp_path / f"leg-{number - 1}"
            point = {"job": resume_from(before / f"out/checkpoints/step-{2 * number}", folder)}
        given = layout | ({"pipeline": degrees.pipeline} if layout else {})
        leg = job(folder, data, degrees.ranks, given, schedule=_steps(2 * number + 2), **every, **point)
        ((_, last),) = run(degrees, [leg])
        seen += losses(leg)
    assert seen == losses(straight)
    for rank in last:
        for weight, value in rank.weights.items():
            assert torch.equal(value, learned.weights[weight]), weight


def _steps(steps: int) -> dict[str, Any]:
    """A learning rate that does not fall, and so does not hang on the last step."""
    return {"steps": steps, "warmup_steps": 1, "final_fraction": 1.0}


def _count_backward_passes(mesh: Mesh, job_file: Path, torch_splits: bool) -> dict[str, int]:
    """How often functions of the graph ran backwards on this rank, under torch's split or ours."""
    counts = {"linear": 0, "loss": 0, "block": 0}

    def counting(function: type[torch.autograd.Function], name: str) -> None:
        backward = function.backward

        def counted(*arguments: Any) -> Any:
            counts[name] += 1
            return backward(*arguments)

        function.backward = staticmethod(counted)  # type: ignore[method-assign]

    counting(_Product if torch_splits else _Linear, "linear")
    counting(loss_module._LossAndGradients, "loss")
    counting(_Same, "block")
    forward = Block.forward
    Block.forward = lambda self, x, *tables: _Same.apply(forward(self, x, *tables))  # type: ignore[method-assign]
    if torch_splits:
        _split_by_torch()
    output_folder(job_file).mkdir(exist_ok=True)
    training = build(read_job(job_file), job_file, mesh)
    training.engine.step(training.loader.micro_batches(1), 1e-3, _clock())
    return counts


class _Product(torch.autograd.Function):
    """A linear layer as one function, which FP8 layers are too."""

    @staticmethod
    def forward(ctx: Any, x_BTK: Tensor, weight_NK: Tensor) -> Tensor:
        ctx.save_for_backward(x_BTK, weight_NK)
        return x_BTK @ weight_NK.T

    @staticmethod
    def backward(ctx: Any, dy_BTN: Tensor) -> tuple[Tensor, Tensor]:
        x_BTK, weight_NK = ctx.saved_tensors
        return dy_BTN @ weight_NK, dy_BTN.flatten(0, 1).T @ x_BTK.flatten(0, 1)


class _Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def _clock() -> StepClock:
    clock = StepClock(torch.device("cpu"))
    clock.start()
    return clock


def _split_by_torch() -> None:
    """Let torch find the two halves of a backward pass in the graph."""
    pipeline_module.defer_weight_gradients = lambda model, deferred: None  # type: ignore[assignment]
    nn.Linear.forward = lambda self, x: _Product.apply(x, self.weight)  # type: ignore[method-assign]
    made = RunningStage.__init__

    def without_builder(self: RunningStage, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        self.dw_builder = None

    RunningStage.__init__ = without_builder  # type: ignore[method-assign]


def test_each_function_runs_backwards_once_a_micro_batch_under_a_zero_bubble_schedule(
    tmp_path: Path, data: Path
) -> None:
    """Rank 0 has stages of 2 and 3 layers and the loss, in 2 chunks of tokens; rank 1 one of 1 and one of 2 layers.

    Negative control: torch's own split runs linear layers twice, for the input's gradient and for the weight's.
    """
    two = Degrees(pipeline=2)
    memory = {
        "memory": {"loss_chunk_tokens": 128},
        "batch": {"sequence_tokens": 256, "micro_sequences": 1, "global_sequences": ROUNDS},
    }
    layout = {"schedule": "zbv", "stages": (2, 1, 2, 3)}
    ours = on_mesh(two, _count_backward_passes, staged(tmp_path / "ours", data, two, layout, **memory), False)
    assert ours == [
        {"linear": 5 * 7 * ROUNDS, "loss": ROUNDS, "block": 5 * ROUNDS},
        {"linear": 3 * 7 * ROUNDS, "loss": 0, "block": 3 * ROUNDS},
    ]
    theirs = on_mesh(two, _count_backward_passes, staged(tmp_path / "theirs", data, two, layout), True)
    assert theirs[1]["linear"] > 3 * 7 * ROUNDS


@pytest.mark.parametrize("layout", [ONE_F_ONE_B, INTERLEAVED], ids=["1f1b", "interleaved"])
def test_recomputed_layers_lie_in_any_stage_and_change_no_bit(
    tmp_path: Path, data: Path, whole: Callable[..., tuple[Path, Learned]], layout: dict[str, Any]
) -> None:
    like, learned = whole(precision={"kind": "bf16"})
    two = Degrees(pipeline=2)
    memory = {"recompute": "full", "recompute_layers": "0-1,5"}
    job_file = staged(tmp_path, data, two, layout, memory=memory, precision={"kind": "bf16"})
    assert_equal(job_file, run(two, [job_file])[0][1], like, learned)


def test_compiled_blocks_learn_in_stages_what_they_learn_in_one_process(
    tmp_path: Path, data: Path, whole: Callable[..., tuple[Path, Learned]]
) -> None:
    sections = {"precision": {"kind": "bf16", "compile": "on"}, "model": MODEL | {"layers": 2}}
    like, learned = whole(**sections)
    two = Degrees(pipeline=2)
    job_file = staged(tmp_path, data, two, ONE_F_ONE_B, **sections)
    assert_equal(job_file, run(two, [job_file])[0][1], like, learned)


def test_phases_sum_to_the_step_and_tell_waiting_from_work(tmp_path: Path, data: Path) -> None:
    two = Degrees(pipeline=2)
    job_file = staged(tmp_path, data, two, ZBV)
    run(two, [job_file])
    for event in events(job_file, "step"):
        phases = {name: value for name, value in event["values"].items() if name.endswith("_seconds")}
        phases.pop("eta_seconds")
        assert sum(phases.values()) == pytest.approx(event["values"]["seconds"])
        assert min(phases.values()) > 0


def _largest_room(mesh: Mesh, job_file: Path) -> list[int]:
    """Micro batches for whose input a stage of this rank has room: the most at once, and after a step."""
    output_folder(job_file).mkdir(exist_ok=True)
    training = build(read_job(job_file), job_file, mesh)
    (stage,) = training.engine._passes._schedule._stages
    rooms: list[int] = []
    forward = stage.forward_one_chunk

    def held() -> int:
        infos = [info for infos in stage.args_recv_info.values() for info in infos]
        return sum(info.buffer is not None and info.buffer.numel() > 0 for info in infos)

    def counted(*arguments: Any, **named: Any) -> Any:
        rooms.append(held())
        return forward(*arguments, **named)

    stage.forward_one_chunk = counted
    training.engine.step(training.loader.micro_batches(1), 1e-3, _clock())
    return [max(rooms), held()]


def test_a_stage_keeps_what_it_received_for_as_many_micro_batches_as_are_in_flight(
    tmp_path: Path, data: Path
) -> None:
    """Under 1F1B stage i of p has p - i in flight, however many micro batches there are."""
    four = Degrees(pipeline=4)
    rooms = on_mesh(four, _largest_room, staged(tmp_path, data, four, ONE_F_ONE_B))
    assert rooms == [[0, 0], [3, 0], [2, 0], [1, 0]]


def _leave_in_the_middle(mesh: Mesh, job_file: Path) -> str | None:
    """Rank 1 goes when it should compute the loss; what does rank 0 meet?"""
    output_folder(job_file).mkdir(exist_ok=True)
    training = build(read_job(job_file), job_file, mesh)
    if mesh.rank == 1:

        def leave(*_: object) -> Tensor:
            _hang_up()
            raise LookupError("gone")

        training.engine._passes._head_loss = leave
    try:
        training.engine.step(training.loader.micro_batches(1), 1e-3, _clock())
    except Exception as error:
        return type(error).__name__
    return None


def _hang_up() -> None:
    """Close this process's connections, as its end would."""
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor.name))) as connection:
            connection.getpeername()  # what listens has none, and is left alone
            connection.shutdown(socket.SHUT_RDWR)


def test_a_rank_that_leaves_is_a_lost_one_to_the_other_stages(tmp_path: Path, data: Path) -> None:
    two = Degrees(pipeline=2)
    met = on_mesh(two, _leave_in_the_middle, staged(tmp_path, data, two, ONE_F_ONE_B))
    assert met == ["RankLostError", "LookupError"]


@pytest.mark.parametrize("raised", [torch.OutOfMemoryError("full"), RankLostError("gone"), ValueError("bad")])
def test_what_a_stage_raises_comes_out_as_it_was(raised: Exception) -> None:
    with pytest.raises(type(raised), match=str(raised)), as_raised():
        try:
            raise raised
        except Exception as error:
            raise RuntimeError("failed to run forward") from error


def test_errors_that_are_not_a_stage_s_stay_as_they_are() -> None:
    with pytest.raises(RankLostError, match="lost"), as_raised():
        try:
            raise RuntimeError("gloo/transport/tcp")
        except RuntimeError as error:
            raise RankLostError("lost") from error


def test_one_stage_adds_nothing(tmp_path: Path, data: Path) -> None:
    training = build_here(job(tmp_path, data))
    assert isinstance(training.engine._passes, Rounds)
    assert not any(isinstance(module, DeferredLinear) for module in training.engine.model.modules())


@pytest.mark.parametrize(
    ("schedule", "layers", "layers_of_ranks"),
    [
        (PipelineSchedule.ONE_F_ONE_B, (5, 3), [[0, 1, 2, 3, 4], [5, 6, 7]]),
        (PipelineSchedule.INTERLEAVED, (1, 3, 2, 2), [[0, 4, 5], [1, 2, 3, 6, 7]]),
        (PipelineSchedule.ZBV, (1, 3, 2, 2), [[0, 6, 7], [1, 2, 3, 4, 5]]),
    ],
)
@pytest.mark.parametrize("tied", [False, True])
def test_ranks_hold_their_layers_under_canonical_names_and_each_weight_counts_once(
    schedule: PipelineSchedule, layers: tuple[int, ...], layers_of_ranks: list[list[int]], tied: bool
) -> None:
    counted: list[str] = []
    for rank, expected in enumerate(layers_of_ranks):
        model = Transformer(ModelSpec.model_validate(MODEL | {"tied_embeddings": tied}), 257, 16)
        everything = dict(model.named_parameters())
        stages = Stages(schedule, 2, layers).of(rank)
        parts = cut(model, stages, whole_parts(model))
        assert [int(layer) for layer in model.layers] == expected
        assert list(parts.held) == [name for name, _ in model.named_parameters()]
        assert list(parts.order) == list(everything)
        assert all(weight is everything[name] for name, weight in model.named_parameters())
        counted += [name for name, part in parts.held.items() if part.counted]
        of_stages = [name for stage in stages for name in stage.names(parts)]
        shared = {"embedding.weight"} if tied and "embedding.weight" in parts.held else set()
        assert sorted(of_stages) == sorted(set(parts.held) - shared)
    assert sorted(counted) == sorted(everything)
