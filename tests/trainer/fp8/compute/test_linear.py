"""FP8 linear layers: as precise as their formats, one byte per saved value,
layouts for tensor cores, and correct metrics."""

import math
import random
from collections import deque
from collections.abc import Callable

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from tests.trainer.ranks import on_ranks
from trainwright.contracts.precision_spec import AmaxKind, ScalingKind
from trainwright_trainer.distributed.mesh import Mesh, single_rank_mesh
from trainwright_trainer.fp8.compute.casting import cast_per_block, cast_per_row, cast_per_tensor, transposed
from trainwright_trainer.fp8.compute.formats import E4M3, E5M2, LARGEST, amax_of, cast, scale_for
from trainwright_trainer.fp8.compute.linear import FP8Linear, InputCast
from trainwright_trainer.fp8.compute.matmul import Operand, check_device, dequantize, scaled_matmul
from trainwright_trainer.fp8.compute.scaling import AmaxHistory, LayerScaling
from trainwright_trainer.fp8.compute.weight import Weight, aligned_scales
from trainwright_trainer.runtime.errors import BadJobError

CPU = torch.device("cpu")
HERE = single_rank_mesh(CPU).world
SCALINGS = list(ScalingKind)
M, K, N = 512, 256, 384
PRESENT = torch.zeros(())


def heavy(*shape: int, seed: int, size: float = 1.0) -> Tensor:
    """Values with far outliers: normal noise times log-normal noise."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(shape, generator=generator) * torch.randn(shape, generator=generator).mul(0.7).exp()
    return noise * size


def sqnr(found: Tensor, exact: Tensor) -> float:
    """Signal-to-quantization-noise ratio in dB."""
    return float(
        10 * (exact.double().square().sum() / (found.double() - exact.double()).square().sum()).log10()
    )


def hold(
    numbers: Tensor, dtype: torch.dtype = torch.float32, gradients: torch.dtype = torch.float32
) -> Weight:
    """A weight with values ``numbers``, stored in ``dtype`` as the optimizer would."""
    weight = Weight(numbers.shape, gradients, numbers.device)
    one = torch.ones((), device=numbers.device)
    scale = one if dtype is torch.float32 else scale_for(amax_of(numbers), dtype)
    codes = numbers if dtype is torch.float32 else cast(numbers / scale, dtype)
    weight.attach(codes, scale, scale_for(amax_of(numbers), E4M3))
    return weight


def layer_of(weight: Weight, scaling: ScalingKind) -> FP8Linear:
    return FP8Linear(weight, InputCast(scaling, weight.handle.device))


def tap_of(layer: FP8Linear) -> LayerScaling:
    return LayerScaling(
        layer.input_cast.amax,
        layer.input_cast.delayed,
        layer.output_gradient_probe,
        layer.output_gradient_scale,
    )


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("held", [torch.float32, torch.float16])
def test_output_and_both_gradients_are_as_precise_as_their_formats(
    scaling: ScalingKind, held: torch.dtype, device: str
) -> None:
    # Rounding to m mantissa bits makes a relative error of mean square 2^-2m / 24 (uniform within half a
    # step, averaged over a binade): E4M3 -31.9 dB, E5M2 -25.8 dB. A matmul adds those of its operands: 28.9
    # dB for y, 24.9 dB for dx and dW. Outliers push small values into the subnormal codes, hence the limit of
    # 20 dB.
    x, w = heavy(4, M // 4, K, seed=0).bfloat16().to(device), heavy(N, K, seed=1, size=0.02).to(device)
    dy = heavy(4, M // 4, N, seed=2, size=1e-5).bfloat16().to(device)
    layer = layer_of(hold(w, held), scaling)
    y = layer(x.requires_grad_())
    y.backward(dy)
    assert x.grad is not None and layer.stored_weight.handle.grad is not None
    x_MK, dy_MN = x.detach().double().flatten(0, 1), dy.double().flatten(0, 1)
    assert sqnr(y.detach().flatten(0, 1), x_MK @ w.double().t()) > 20
    assert sqnr(x.grad.flatten(0, 1), dy_MN @ w.double()) > 20
    assert sqnr(layer.stored_weight.handle.grad, dy_MN.t() @ x_MK) > 20
    # A cast without a scale loses gradients of this size entirely.
    unscaled = Operand(cast(dy.flatten(0, 1), E5M2), torch.ones((), device=device))
    assert sqnr(dequantize(unscaled), dy_MN) < 20


@pytest.mark.parametrize("gradients", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("features", [128, 384, 512])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_operands_have_the_layouts_that_torch_requires_on_gpus(
    scaling: ScalingKind, features: int, gradients: torch.dtype
) -> None:
    # Meta tensors take the same path as GPUs, and torch checks the GPU's rules on them.
    weight = hold(torch.empty(256, features, device="meta"), gradients=gradients)
    x = torch.empty(M, features, device="meta", dtype=torch.bfloat16, requires_grad=True)
    y = layer_of(weight, scaling)(x)
    y.backward(torch.empty_like(y))
    assert weight.handle.grad is not None and weight.handle.grad.dtype is gradients
    codes, one = torch.empty(M, features, device="meta", dtype=E4M3), torch.ones((), device="meta")
    with pytest.raises(RuntimeError, match="col_major"):  # the rules are checked
        torch._scaled_mm(codes, codes.t().contiguous(), one, one)


@pytest.mark.slow(target="layouts")
def test_matmuls_of_blocks_are_one_opaque_operator_to_the_compiler() -> None:
    # torch 2.13 would pass the scales of one operator to another that expects a different memory layout. Meta
    # tensors take the same path as GPUs.
    torch._dynamo.reset()
    layer = layer_of(hold(torch.empty(256, K, device="meta")), ScalingKind.BLOCK)
    called: list[str] = []

    def note(graph: torch.fx.GraphModule, inputs: object) -> object:
        called.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    x = torch.empty(M, K, device="meta", dtype=torch.bfloat16, requires_grad=True)
    y = torch.compile(layer, fullgraph=True, dynamic=False, backend=aot_autograd(fw_compiler=note))(x)
    y.backward(torch.empty_like(y))
    assert x.grad is not None and layer.stored_weight.handle.grad is not None
    assert called.count("trainwright.multiply_blocks.default") == 3
    assert not [name for name in called if "scaled_mm" in name]


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("gradients", [torch.bfloat16, torch.float32])
def test_gradients_have_the_dtype_of_the_handle(scaling: ScalingKind, gradients: torch.dtype) -> None:
    weight = hold(heavy(N, K, seed=1), gradients=gradients)
    y = layer_of(weight, scaling)(heavy(M, K, seed=0).bfloat16().requires_grad_())
    y.backward(heavy(M, N, seed=2).bfloat16())
    assert y.dtype is torch.bfloat16
    assert weight.handle.grad is not None and weight.handle.grad.dtype is gradients
    rounded = torch.equal(weight.handle.grad, weight.handle.grad.bfloat16().to(gradients))
    assert rounded is (gradients is torch.bfloat16)


def test_e4m3_weights_are_multiplied_without_a_cast() -> None:
    numbers = heavy(N, K, seed=1)
    x, dy = heavy(M, K, seed=0).bfloat16(), heavy(M, N, seed=2).bfloat16()
    found = []
    for weight in (hold(numbers), hold(numbers, E4M3)):
        x_leaf = x.clone().requires_grad_()
        y = layer_of(weight, ScalingKind.TENSOR)(x_leaf)
        y.backward(dy)
        found.append((y, x_leaf.grad, weight.handle.grad))
    for cast_now, cast_before in zip(*found, strict=True):
        assert cast_now is not None and cast_before is not None
        assert torch.equal(cast_now, cast_before)


def saved_bytes(forward: Callable[[], Tensor], weights: list[Weight]) -> dict[torch.dtype, int]:
    """Bytes saved for the backward pass, by dtype.
    Shared memory counts once; that of the weights does not count."""
    known = {weight.codes.untyped_storage().data_ptr() for weight in weights}
    seen: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in known and tensor.numel() > 1:
            seen[tensor.data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = forward()
    assert kept.requires_grad
    total: dict[torch.dtype, int] = {}
    for tensor in seen.values():
        total[tensor.dtype] = total.get(tensor.dtype, 0) + tensor.nbytes
    return total


def saved_by_layers_of_one_input(scaling: ScalingKind) -> dict[torch.dtype, int]:
    """What three layers that read the same input save for their backward passes."""
    weights = [hold(heavy(N, K, seed=seed)) for seed in range(3)]
    shared = InputCast(scaling, CPU)
    layers = [FP8Linear(weight, shared) for weight in weights]
    x = heavy(M, K, seed=9).bfloat16().requires_grad_()
    return saved_bytes(lambda: torch.stack([layer(x).sum() for layer in layers]).sum(), weights)


@pytest.mark.parametrize(
    ("scaling", "scales"), [(ScalingKind.TENSOR, 0), (ScalingKind.ROW, K), (ScalingKind.BLOCK, K * M // 128)]
)
def test_only_one_cast_of_a_shared_input_is_saved_for_backward(scaling: ScalingKind, scales: int) -> None:
    saved = saved_by_layers_of_one_input(scaling)
    assert saved.pop(E4M3) == M * K
    assert saved.pop(torch.float32, 0) == 4 * scales
    assert saved == {}


def test_casts_by_each_layer_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InputCast, "forward", InputCast._cast)
    assert saved_by_layers_of_one_input(ScalingKind.TENSOR)[E4M3] == 3 * M * K


def test_an_input_that_changed_in_place_is_cast_again() -> None:
    layer = layer_of(hold(heavy(N, K, seed=1)), ScalingKind.TENSOR)
    x = heavy(M, K, seed=0).bfloat16()
    with torch.no_grad():
        before = layer(x)
        x.mul_(2.0)
        assert torch.equal(layer(x), 2 * before)
    x.requires_grad_()  # the cast above needs no backward pass
    layer(x).sum().backward()
    assert layer.stored_weight.handle.grad is not None


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_weight_may_be_updated_while_another_waits_for_its_backward_pass(scaling: ScalingKind) -> None:
    flat = heavy(2 * K * K, seed=1)
    layers = []
    for numbers in flat.view(2, K, K):
        weight = Weight(numbers.shape, torch.bfloat16, CPU)
        weight.attach(numbers, torch.ones(()), scale_for(amax_of(flat), E4M3))
        layers.append(layer_of(weight, scaling))

    def move(handle: Tensor) -> None:
        flat[K * K :].zero_()

    layers[1].stored_weight.handle.register_post_accumulate_grad_hook(move)
    x = heavy(M, K, seed=0).bfloat16().requires_grad_()
    layers[1](layers[0](x)).sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0
    assert not layers[1].stored_weight.codes.any()


def test_operands_represent_their_values_within_rounding() -> None:
    x = heavy(256, 384, seed=0).bfloat16()
    operands = {
        "tensor": cast_per_tensor(x, E4M3, PRESENT).operand,
        "row": cast_per_row(x, E4M3).operand,
        "1x128": cast_per_block(x, E4M3).operand,
        "128x128": cast_per_block(x, E4M3, rows=128).operand,
    }
    shapes = {name: tuple(operand.scale.shape) for name, operand in operands.items()}
    assert shapes == {"tensor": (), "row": (256, 1), "1x128": (256, 3), "128x128": (2, 3)}
    for operand in operands.values():
        # Half a step of three mantissa bits, or half the smallest code times the scale.
        bound = torch.maximum(x.abs().float() * 2**-4, operand.scale.max() * 2**-10)
        assert ((dequantize(operand) - x.float()).abs() <= bound).all()
    for name in ("tensor", "128x128"):
        assert torch.equal(dequantize(transposed(operands[name])), dequantize(operands[name]).t())


@pytest.mark.parametrize("rows", [1, 128])
def test_matmuls_of_blocks_are_sums_over_their_blocks(rows: int) -> None:
    a = cast_per_block(heavy(256, 384, seed=0).bfloat16(), E4M3).operand
    b = cast_per_block(heavy(128, 384, seed=1).bfloat16(), E4M3, rows).operand
    expected = torch.zeros(256, 128, dtype=torch.float64)
    for block in range(3):
        columns = slice(128 * block, 128 * (block + 1))
        partial = a.codes[:, columns].double() @ b.codes[:, columns].double().t()
        spread = b.scale[:, block].repeat_interleave(rows)
        expected += partial * a.scale[:, block, None].double() * spread.double()
    # One rounding to bfloat16; float32 sums of 384 terms are far below it.
    bound = expected.abs() * 2**-8 + expected.abs().max() * 1e-5
    assert ((scaled_matmul(a, b, torch.bfloat16).double() - expected).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("out", [torch.bfloat16, torch.float32])
def test_matmuls_are_those_of_torch(dtype: torch.dtype, out: torch.dtype) -> None:
    a, b = heavy(256, 384, seed=0).bfloat16(), heavy(128, 384, seed=1).bfloat16()
    for one, other in (
        (cast_per_tensor(a, dtype, PRESENT).operand, cast_per_tensor(b, E4M3, PRESENT).operand),
        (cast_per_row(a, dtype).operand, cast_per_row(b, E4M3).operand),
    ):
        scale_b = other.scale if other.scale.ndim == 0 else other.scale.t()
        expected = torch._scaled_mm(one.codes, other.codes.t(), one.scale, scale_b, out_dtype=out)
        found = scaled_matmul(one, other, out)
        assert found.dtype is expected.dtype is out
        # Sums of 384 terms in float32, in another order; then bfloat16's last bit may differ.
        bound = expected.abs() * (2**-7 if out is torch.bfloat16 else 0) + expected.abs().max() * 384 * 2**-24
        assert ((found.float() - expected.float()).abs() <= bound).all()


def _codes(rows: int, columns: int, dtype: torch.dtype = E4M3) -> Tensor:
    return torch.zeros(rows, columns).to(dtype)


@pytest.mark.parametrize(
    ("a", "b", "rule"),
    [
        (_codes(32, 16).t(), _codes(16, 32), "contiguous"),
        (_codes(16, 32), _codes(32, 16).t(), "contiguous"),
        (_codes(16, 24), _codes(16, 24), "multiples of 16"),
        (_codes(16, 32), _codes(24, 32), "multiples of 16"),
        (_codes(16, 32), _codes(16, 48), "the same contracted dim"),
        (_codes(16, 32, E5M2), _codes(16, 32, E5M2), "E5M2"),
        (_codes(16, 32), _codes(16, 32, E5M2), "E5M2"),
    ],
)
def test_operands_that_tensor_cores_refuse_are_refused_on_a_cpu_too(a: Tensor, b: Tensor, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        scaled_matmul(Operand(a, torch.ones(())), Operand(b, torch.ones(())), torch.bfloat16)


@pytest.mark.parametrize("rows", [1, 128])
def test_e5m2_has_no_matmuls_with_scales_by_block(rows: int) -> None:
    a = cast_per_block(torch.ones(128, 256), E5M2).operand
    b = cast_per_block(torch.ones(128, 256), E4M3, rows).operand
    with pytest.raises(AssertionError, match="both operands are E4M3"):
        scaled_matmul(a, b, torch.bfloat16)


def test_each_scale_of_a_model_is_aligned_as_cublas_requires() -> None:
    scales = aligned_scales(9, torch.device("cpu"))
    assert scales.tolist() == [1.0] * 9
    assert all(scale.data_ptr() % 16 == 0 for scale in scales.unbind())
    weight = Weight(torch.Size((16, 32)), torch.bfloat16, torch.device("cpu"))
    codes, dense = torch.zeros(16, 32), torch.ones(9)
    weight.attach(codes, dense[1], scales[1])
    with pytest.raises(AssertionError, match="aligned"):
        weight.attach(codes, dense[1], dense[1])


@pytest.mark.parametrize(
    ("capability", "cuda", "scaling", "refusal"),
    [
        ((8, 0), "13.0", ScalingKind.TENSOR, "precision.kind.*8.9.*8.0"),
        ((8, 9), "12.8", ScalingKind.ROW, None),
        ((9, 0), "13.0", ScalingKind.BLOCK, None),
        ((9, 0), "12.8", ScalingKind.BLOCK, "precision.fp8.scaling.*12.9"),
        ((10, 0), "13.0", ScalingKind.BLOCK, "precision.fp8.scaling.*9.0.*10.0"),
    ],
)
def test_a_scaling_that_the_device_lacks_is_refused_by_field(
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    cuda: str,
    scaling: ScalingKind,
    refusal: str | None,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    check_device(scaling, CPU)
    if refusal is None:
        check_device(scaling, torch.device("cuda", 0))
    else:
        with pytest.raises(BadJobError, match=refusal):
            check_device(scaling, torch.device("cuda", 0))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_amaxes_are_the_largest_of_all_micro_batches_and_reset_each_step(scaling: ScalingKind) -> None:
    layer = layer_of(hold(heavy(N, K, seed=1)), scaling)
    records = AmaxHistory({"w": tap_of(layer)}, AmaxKind.CURRENT)
    inputs = [heavy(M, K, seed=seed, size=size).bfloat16() for seed, size in ((2, 1.0), (3, 4.0), (4, 0.5))]
    gradients = [
        heavy(M, N, seed=seed, size=size).bfloat16() for seed, size in ((5, 1.0), (6, 0.1), (7, 9.0))
    ]
    for x, dy in zip(inputs, gradients, strict=True):
        layer(x.requires_grad_()).backward(dy)
        records.end_micro_batch()
    with torch.no_grad():
        layer.eval()(100 * inputs[0])  # evaluation leaves the history unchanged
    records.end_step(HERE)
    input_amax = max(float(x.detach().abs().max()) for x in inputs)
    gradient_amax = max(float(dy.abs().max()) for dy in gradients)
    assert records.observed() == {
        "w:input": (input_amax, float(scale_for(torch.tensor(input_amax), E4M3))),
        "w:output_gradient": (gradient_amax, float(scale_for(torch.tensor(gradient_amax), E5M2))),
    }
    records.end_micro_batch()
    records.end_step(HERE)
    assert [amax for amax, _ in records.observed().values()] == [0.0, 0.0]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_recomputing_a_layer_changes_no_amax_and_no_gradient(
    scaling: ScalingKind,
) -> None:
    x = heavy(M, K, seed=0).bfloat16()
    found = []
    for again in (False, True):
        layers = [layer_of(hold(heavy(K, K, seed=seed)), scaling) for seed in (1, 2)]
        records = AmaxHistory({str(i): tap_of(layer) for i, layer in enumerate(layers)}, AmaxKind.CURRENT)

        def both(x: Tensor, layers: list[FP8Linear] = layers) -> Tensor:
            return layers[1](layers[0](x)) + layers[0](x)

        leaf = x.clone().requires_grad_()
        y = checkpoint(both, leaf, use_reentrant=False) if again else both(leaf)
        y.backward(heavy(M, K, seed=3).bfloat16())
        records.end_micro_batch()
        records.end_step(HERE)
        found.append(
            (records.observed(), [leaf.grad, *(layer.stored_weight.handle.grad for layer in layers)])
        )
    (plain, expected), (recomputed, gradients) = found
    assert recomputed == plain and all(amax > 0 for amax, _ in plain.values())
    for one, other in zip(gradients, expected, strict=True):
        assert one is not None and other is not None
        assert torch.equal(one, other)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_non_finite_tensor_is_reported_in_its_step_only(bad: float) -> None:
    layers = {name: layer_of(hold(heavy(K, K, seed=1)), ScalingKind.TENSOR) for name in "abc"}
    records = AmaxHistory({name: tap_of(layer) for name, layer in layers.items()}, AmaxKind.CURRENT)

    def step(x_factor: float, dy_factor: float) -> set[str]:
        x = heavy(M, K, seed=0).bfloat16()
        x[3, 5] *= x_factor
        for layer in layers.values():
            x = layer(x)
        dy = torch.ones_like(x)
        dy[7, 9] *= dy_factor
        x.backward(dy)
        records.end_micro_batch()
        records.collect(HERE)
        assert bool(records.finite()) is (x_factor == dy_factor == 1.0)
        found = non_finite_tensor(records)
        records.skip_step(HERE)
        return found

    assert step(1.0, 1.0) == set()
    assert "a:input" in step(bad, 1.0)
    assert "a:input" not in step(1.0, bad) >= {"c:output_gradient"}
    assert step(1.0, 1.0) == set()


@pytest.mark.parametrize("delayed", [0.0, 1.0])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_non_finite_input_gives_a_non_finite_output(
    bad: float, scaling: ScalingKind, delayed: float, device: str
) -> None:
    """This holds where amaxes are not recorded too: a validation loss must not come from clamped values."""
    layer = layer_of(hold(heavy(N, K, seed=1).to(device)), scaling).eval()
    layer.input_cast.delayed.fill_(delayed)
    x = heavy(M, K, seed=0).bfloat16().to(device)
    with torch.no_grad():
        healthy = layer(x)
        x[3, 5] = bad
        y = layer(x)
    assert torch.isfinite(healthy).all()
    assert torch.isnan(y[3]).all()
    if scaling is not ScalingKind.TENSOR:  # other tokens have their own scales
        assert torch.equal(y[4:], healthy[4:])


class Rules:
    """The rules of delayed scaling for one tensor, in their simplest form."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.last: deque[float] = deque(maxlen=16)
        self.scale: float | None = None

    def step(self, amax: float, counts: bool) -> float | None:
        """Returns the scale for the next step, or None for that of the current amax."""
        if not math.isfinite(amax):
            self.last.clear()
        elif counts:
            self.last.append(amax)
        if len(self.last) < 16:
            self.scale = None
        elif max(self.last) > 0:
            self.scale = 2.0 ** -math.floor(math.log2(LARGEST[self.dtype] / max(self.last)))
        return self.scale


def _scalar_tap() -> LayerScaling:
    return LayerScaling(
        torch.zeros(()), torch.zeros(()), torch.zeros((), requires_grad=True), torch.zeros(())
    )


def scales_of(taps: dict[str, LayerScaling]) -> list[float]:
    return [float(scale) for tap in taps.values() for scale in (tap.input_scale, tap.output_gradient_scale)]


def test_delayed_scales_follow_the_rules_and_a_resumed_history_continues_bitwise() -> None:
    draw = random.Random(0)
    taps = {name: _scalar_tap() for name in "abc"}
    records = AmaxHistory(taps, AmaxKind.DELAYED)
    rules = [(Rules(E4M3), Rules(E5M2)) for _ in taps]
    seen_delayed = 0
    scales: list[float] = []
    for step in range(200):
        if step == 90:  # a new process takes over
            state = {name: tensor.clone() for name, tensor in records.state().items()}
            taps = {name: _scalar_tap() for name in "abc"}
            records = AmaxHistory(taps, AmaxKind.DELAYED)
            records.restore(state)
            assert scales_of(taps) == scales
        counts = draw.random() > 0.05
        expected = []
        for tap, pair in zip(taps.values(), rules, strict=True):
            zero = 60 <= step < 80
            amaxes = [0.0 if zero else math.exp(draw.gauss(0, 4)) for _ in pair]
            amaxes = [math.inf if draw.random() < 0.01 else amax for amax in torch.tensor(amaxes).tolist()]
            tap.input_amax.fill_(amaxes[0])
            (tap.output_gradient_probe * amaxes[1]).backward()
            expected += [rule.step(amax, counts) for rule, amax in zip(pair, amaxes, strict=True)]
        records.end_micro_batch()
        (records.end_step if counts else records.skip_step)(HERE)
        scales = scales_of(taps)
        assert scales == [scale or 0.0 for scale in expected], f"step {step}"
        seen_delayed += sum(scale is not None for scale in expected)
    assert 300 < seen_delayed < 1_100  # both kinds of scale occurred


def non_finite_tensor(records: AmaxHistory) -> set[str]:
    return {name for name, (amax, _) in records.observed().items() if not math.isfinite(amax)}


def _step_of_rank(mesh: Mesh) -> tuple[dict[str, tuple[float, float]], set[str], list[float]]:
    taps = {name: _scalar_tap() for name in "ab"}
    records = AmaxHistory(taps, AmaxKind.DELAYED)
    for step in range(17):
        for number, tap in enumerate(taps.values()):
            amax = 1.0 + step + 20 * ((mesh.rank + number) % 2)
            tap.input_amax.fill_(amax)
            (tap.output_gradient_probe * (math.inf if step == 16 and amax == 17 else amax)).backward()
        records.end_micro_batch()
        records.end_step(mesh.world)
    return records.observed(), non_finite_tensor(records), scales_of(taps)


@pytest.mark.slow(target="layouts")
def test_all_ranks_record_the_largest_amax_of_any_rank() -> None:
    ranks = on_ranks(2, _step_of_rank)
    assert ranks[0] == ranks[1]
    observed, bad, scales = ranks[0]
    assert observed["a:input"] == observed["b:input"] == (37.0, 2.0**-3)
    assert "b:output_gradient" in bad
    assert scales == [2.0**-3, 0.0] * 2


def test_the_fraction_of_clamped_tensors_is_reported() -> None:
    taps = {name: _scalar_tap() for name in "ab"}

    def saturated(records: AmaxHistory, *amaxes: float) -> float:
        for tap, of_input, of_gradient in zip(taps.values(), amaxes[::2], amaxes[1::2], strict=True):
            tap.input_amax.fill_(of_input)
            (tap.output_gradient_probe * of_gradient).backward()
        records.end_micro_batch()
        records.collect(HERE)
        share = float(records.saturated())
        records.end_step(HERE)
        assert float(records.saturated()) == share
        return share

    delayed = AmaxHistory(taps, AmaxKind.DELAYED)
    for _ in range(16):
        assert saturated(delayed, 1.0, 1.0, 1e9, 1e-9) == 0.0  # scales of the current amax
    # For 1, both formats leave a margin of 1.75: 448 = 1.75 · 2⁸ and 57,344 = 1.75 · 2¹⁵.
    assert saturated(delayed, 1.75, 1.75, 1e9, 1e-9) == 0.0
    assert saturated(delayed, 1.0, 4.0, 1e9, 1e-9) == 0.25
    assert saturated(delayed, 4.0, 1.0, 1e9, 1e-8) == 0.5
    present = AmaxHistory(taps, AmaxKind.CURRENT)
    for amax in (1.0, 1e6):
        assert saturated(present, *[amax] * 4) == 0.0


def test_a_delayed_scale_is_used_and_larger_values_are_clamped() -> None:
    layer = layer_of(hold(heavy(N, K, seed=1)), ScalingKind.TENSOR)
    x = heavy(M, K, seed=0).bfloat16().clamp(-1, 1)
    layer.input_cast.delayed.fill_(2.0**-10)  # the largest value is 448 / 1024
    with torch.no_grad():
        clamped = layer(x.clamp(-0.4375, 0.4375))
        assert torch.equal(layer(x), clamped)
        layer.input_cast.delayed.zero_()
        assert not torch.equal(layer(x.clone()), clamped)
