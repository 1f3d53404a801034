"""A converted model is the same model:
same names, same calls, and same values except for the noise of 8 bits."""

import copy
import shutil
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.precision_spec import AccumulationKind, FP8Spec, ScalingKind
from trainwright.contracts.training_spec import MemorySpec, RecomputeKind
from trainwright_trainer.distributed.mesh import single_rank_mesh
from trainwright_trainer.fp8.compute.bf16_layers import BF16Embedding, BF16Linear, BF16Norm
from trainwright_trainer.fp8.compute.conversion import ConvertedModel, convert, fp8_weights
from trainwright_trainer.fp8.compute.formats import E4M3, LARGEST, amax_of, cast, scale_for
from trainwright_trainer.fp8.compute.linear import FP8Linear
from trainwright_trainer.fp8.compute.weight import Weight
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.loss import ChunkGradient, chunk_gradient, head_loss
from trainwright_trainer.model.recompute import recompute
from trainwright_trainer.model.transformer import Transformer

HERE = single_rank_mesh(torch.device("cpu")).world
B, T, V = 2, 128, 96
LAYERS = 3
MATRICES = [
    "attention.query",
    "attention.key",
    "attention.value",
    "attention.output",
    "feed_forward.gate",
    "feed_forward.up",
    "feed_forward.down",
]


def build(tied: bool = True) -> Transformer:
    spec = ModelSpec(
        layers=LAYERS, width=128, heads=4, kv_heads=2, head_size=64, feed_forward=256, tied_embeddings=tied
    )
    model = Transformer(spec, V, T)
    initialize(model, spec, seed=0)
    return model


def converted(model: Transformer, spec: FP8Spec) -> tuple[Transformer, ConvertedModel]:
    """A converted copy, with the float32 values of ``model`` attached."""
    numbers = {name: one.detach().clone() for name, one in model.named_parameters()}
    model = copy.deepcopy(model)
    result = convert(model, spec, torch.device("cpu"))
    for name, weight in result.weights.items():
        weight.attach(numbers[name], torch.ones(()), scale_for(amax_of(numbers[name]), E4M3))
    return model, result


def bf16(model: Transformer) -> Transformer:
    """A copy with weights in bfloat16. Rotary position tables stay in float32."""
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    return model


def tokens() -> Tensor:
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))


def towards(logits: Tensor) -> Tensor:
    """A gradient to start a backward pass with."""
    return torch.randn(logits.shape, generator=torch.Generator().manual_seed(2)).to(logits.dtype)


def distance(found: Tensor, expected: Tensor) -> float:
    exact = expected.detach().double()
    return float((found.detach().double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scaling", list(ScalingKind))
def test_the_converted_model_computes_what_the_bf16_model_computes(scaling: ScalingKind, tied: bool) -> None:
    model = build(tied)
    in_fp8, result = converted(model, FP8Spec(scaling=scaling))
    in_bf16 = bf16(model)
    logits, expected = in_fp8(tokens()), in_bf16(tokens())
    logits.backward(towards(logits))
    expected.backward(towards(expected))
    # A matmul in FP8 has noise of 3.6 % forward and 5.7 % backward (see test_linear). A block adds to the
    # residual stream, whose largest part is the embedding, so logits get less. A gradient accumulates the
    # noise of the matmuls it passes through, at most 3 layers × 3 in a row: 5.7 % · √9 = 17 %.
    assert 0.005 < distance(logits, expected) < 0.06
    for name, one in in_bf16.named_parameters():
        gradient = result.weights[name].handle.grad
        assert gradient is not None and one.grad is not None
        assert 0.005 < distance(gradient, one.grad) < 0.17, name


@pytest.mark.parametrize("tied", [True, False])
def test_weights_have_canonical_names_in_the_model_s_order(tied: bool) -> None:
    model = build(tied)
    in_fp8, result = converted(model, FP8Spec(accumulation=AccumulationKind.FP32))
    shapes = {name: one.shape for name, one in model.named_parameters()}
    assert list(result.weights) == list(shapes)
    assert {name: weight.handle.shape for name, weight in result.weights.items()} == shapes
    assert {weight.handle.dtype for weight in result.weights.values()} == {torch.float32}
    handles = {id(weight.handle) for weight in result.weights.values()}
    assert {id(parameter) for parameter in in_fp8.parameters()} == handles and len(handles) == len(shapes)
    bytes_held = sum(parameter.untyped_storage().nbytes() for parameter in in_fp8.parameters())
    assert bytes_held == 4 * len(shapes)


def test_a_tied_embedding_is_one_weight_with_gradients_from_both_uses() -> None:
    in_fp8, result = converted(build(), FP8Spec())
    dense = in_fp8.head.weight
    assert torch.equal(dense, in_fp8.embedding.weight) and dense.dtype is torch.bfloat16
    assert in_fp8.head.stored_weight is in_fp8.embedding.stored_weight is result.weights["embedding.weight"]
    handle = result.weights["embedding.weight"].handle
    seen = []
    for part in (in_fp8.embedding(tokens()), dense):
        handle.grad = None
        part.sum().backward(retain_graph=True)
        seen.append(handle.grad.clone())
    handle.grad = None
    (in_fp8.embedding(tokens()).sum() + dense.sum()).backward()
    assert torch.equal(handle.grad, seen[0] + seen[1])


@pytest.mark.parametrize("gradients", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("held", [torch.float32, torch.float16, E4M3])
def test_an_embedding_looks_up_rows_of_the_dense_weight_bit_for_bit(
    held: torch.dtype, compiled: bool, gradients: torch.dtype
) -> None:
    torch._dynamo.reset()
    # Far outliers, so that small values become subnormal codes.
    numbers = torch.randn(V, 128, generator=torch.Generator().manual_seed(3)).pow(9)
    scale = torch.ones(()) if held is torch.float32 else scale_for(amax_of(numbers), held)
    weight = Weight(numbers.shape, gradients, HERE.device)
    weight.attach(cast(numbers / scale, held) if held in LARGEST else numbers, scale, torch.ones(()))
    exact = (weight.codes.float() * scale).bfloat16()
    assert torch.equal(weight.dense(), exact)
    look_up = BF16Embedding(weight)
    if compiled:
        look_up.compile(fullgraph=True, backend="aot_eager")
    found, leaf = look_up(tokens()), exact.requires_grad_()
    expected = nn.functional.embedding(tokens(), leaf)
    assert torch.equal(found, expected)
    for item in (found, expected):
        item.backward(towards(item))
    assert weight.handle.grad is not None and leaf.grad is not None
    assert weight.handle.grad.dtype is gradients
    assert torch.equal(weight.handle.grad, leaf.grad.to(gradients))


def test_an_embedding_converts_only_the_rows_it_looks_up() -> None:
    many = 10_000
    weight = Weight(torch.Size((many, 128)), torch.bfloat16, HERE.device)
    weight.attach(torch.zeros(many, 128, dtype=torch.float16), torch.ones(()), torch.ones(()))
    taken = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal taken
            result = func(*args, **(kwargs or {}))
            taken = max(taken, result.shape.numel())
            return result

    embedding = BF16Embedding(weight)
    with Watch():
        embedding(tokens())
    assert taken == B * T * 128 < many * 128


def test_fp8_is_used_in_blocks_except_those_in_high_precision() -> None:
    names = [name for name, _ in build().named_parameters()]
    for first, last, blocks in ((0, 0, {0, 1, 2}), (1, 0, {1, 2}), (0, 2, {0}), (1, 1, {1})):
        expected = {f"layers.{block}.{matrix}.weight" for block in blocks for matrix in MATRICES}
        assert fp8_weights(names, FP8Spec(bf16_first_layers=first, bf16_last_layers=last)) == expected


def test_layers_in_high_precision_equal_the_bf16_model_bit_for_bit() -> None:
    model = build()
    in_fp8, _ = converted(model, FP8Spec(bf16_first_layers=1))
    in_bf16 = bf16(model)
    streams: list[list[Tensor]] = []
    for item in (in_fp8, in_bf16):
        stream: list[Tensor] = []
        for block in item.layers.values():

            def keep(module: nn.Module, given: object, out: Tensor, stream: list[Tensor] = stream) -> None:
                stream.append(out)

            block.register_forward_hook(keep)
        item(tokens())
        streams.append(stream)
    (first, second, _), (expected_first, expected_second, _) = streams
    assert torch.equal(first, expected_first)
    assert not torch.equal(second, expected_second)
    kinds = {type(module) for module in in_fp8.layers["0"].modules()}
    assert BF16Linear in kinds and BF16Norm in kinds and FP8Linear not in kinds
    assert isinstance(in_fp8.embedding, BF16Embedding) and isinstance(in_fp8.head, BF16Linear)


def test_amaxes_are_recorded_by_weight_in_forward_order() -> None:
    in_fp8, result = converted(build(), FP8Spec())
    logits = in_fp8(tokens())
    logits.backward(towards(logits))
    result.amax_history.end_micro_batch()
    result.amax_history.end_step(HERE)
    observed = result.amax_history.observed()
    assert list(observed) == [
        f"layers.{block}.{matrix}.weight:{side}"
        for block in range(LAYERS)
        for matrix in MATRICES
        for side in ("input", "output_gradient")
    ]
    for block in range(LAYERS):
        query, key, gate, up, down = (
            observed[f"layers.{block}.{matrix}.weight:input"]
            for matrix in (
                "attention.query",
                "attention.key",
                "feed_forward.gate",
                "feed_forward.up",
                "feed_forward.down",
            )
        )
        assert query == key and gate == up != down
    assert all(amax > 0 for amax, _ in observed.values())


def test_layers_that_read_the_same_tensor_share_its_cast() -> None:
    in_fp8, _ = converted(build(), FP8Spec())
    casts = []
    for block in in_fp8.layers.values():
        attention, feed_forward = block.attention, block.feed_forward
        assert attention.query.input_cast is attention.key.input_cast is attention.value.input_cast
        assert feed_forward.gate.input_cast is feed_forward.up.input_cast
        casts += [attention.query, attention.output, feed_forward.gate, feed_forward.down]
    assert len({id(layer.input_cast) for layer in casts}) == 4 * LAYERS


@pytest.mark.slow(target="layouts")
def test_a_converted_block_compiles_whole_and_once_for_all_layers() -> None:
    torch._dynamo.reset()
    counters.clear()
    found = []
    for compiled in (False, True):
        in_fp8, result = converted(build(), FP8Spec())
        if compiled:
            for block in in_fp8.layers.values():
                block.compile(fullgraph=True, dynamic=False, backend="aot_eager")
        logits = in_fp8(tokens())
        logits.backward(towards(logits))
        result.amax_history.end_micro_batch()
        result.amax_history.end_step(HERE)
        gradients = [weight.handle.grad for weight in result.weights.values()]
        found.append((logits, gradients, result.amax_history.observed()))
    assert counters["stats"]["unique_graphs"] == 1
    (logits, gradients, observed), (compiled_logits, compiled_gradients, compiled_observed) = found
    # The same operations one by one.
    assert torch.equal(compiled_logits, logits)
    assert compiled_observed == observed
    for gradient, expected in zip(compiled_gradients, gradients, strict=True):
        assert gradient is not None and expected is not None
        assert distance(gradient, expected) < 2**-8


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("kind", [RecomputeKind.NONE, RecomputeKind.SELECTIVE])
def test_compiled_blocks_and_loss_chunks_learn_what_eager_ones_do(kind: RecomputeKind) -> None:
    """All passes over a model combined, as in a run on a GPU, except for the generated code."""
    torch._dynamo.reset()
    counters.clear()
    found = []
    for compiled in (False, True):
        in_fp8, result = converted(build(), FP8Spec())
        recompute(in_fp8, MemorySpec(recompute=kind))
        gradient_of: ChunkGradient = chunk_gradient
        if compiled:
            for block in in_fp8.layers.values():
                block.compile(fullgraph=True, dynamic=False, backend="aot_eager")
            gradient_of = torch.compile(chunk_gradient, fullgraph=True, dynamic=False, backend="aot_eager")
        targets = tokens().roll(-1, dims=1)
        loss = head_loss(in_fp8.features(tokens()), in_fp8.head.weight, targets, B * T // 4, gradient_of)
        loss.backward()
        result.amax_history.end_micro_batch()
        result.amax_history.end_step(HERE)
        gradients = {name: weight.handle.grad for name, weight in result.weights.items()}
        found.append((loss, gradients, result.amax_history.observed()))
    assert counters["stats"]["unique_graphs"] == 2  # a block and a chunk
    (loss, gradients, observed), (compiled_loss, compiled_gradients, compiled_observed) = found
    # The same operations one by one. Gradients may be summed in another order and are then rounded to
    # bfloat16.
    assert torch.equal(compiled_loss, loss)
    assert compiled_observed == observed
    for name, gradient in gradients.items():
        other = compiled_gradients[name]
        assert gradient is not None and other is not None
        assert distance(other, gradient) < 2**-8, name


@pytest.mark.slow(target="layouts")
def test_generated_code_computes_what_the_layers_compute() -> None:
    torch._dynamo.reset()
    backend = "inductor" if shutil.which("g++") else "aot_eager"
    x = torch.randn(B, T, 128, generator=torch.Generator().manual_seed(3)).bfloat16()
    found = []
    for compiled in (False, True):
        in_fp8, result = converted(build(), FP8Spec())
        part = in_fp8.layers["0"].feed_forward
        if compiled:
            part.compile(fullgraph=True, dynamic=False, backend=backend)
        leaf = x.clone().requires_grad_()
        y = part(leaf)
        y.backward(towards(y))
        gradients = [layer.stored_weight.handle.grad for layer in (part.gate, part.up, part.down)]
        found.append([y, leaf.grad, *gradients])
        result.amax_history.end_micro_batch()
    # Fused code does not round to bfloat16 between operations. Of values that differ by 2⁻⁹, one in 32 falls
    # on the other side of a midpoint between codes (2⁻⁴ apart on average, relative to the value) and moves by
    # a full step: noise of 2⁻⁴ · √(1/32) = 1 % per operand. Three matmuls in a row with two operands each: 1
    # % · √6 = 2.7 %.
    for one, other in zip(found[1], found[0], strict=True):
        assert one is not None and other is not None
        assert distance(one, other) < 0.027
