"""8-bit codes have the values of the standard, rounding is to nearest even, and scales follow the paper."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from trainwright_trainer.fp8.compute.formats import (
    E4M3,
    E5M2,
    LARGEST,
    SMALLEST,
    amax_of,
    cast,
    cast_,
    scale_for,
    widen,
)

FORMATS = [E4M3, E5M2]

INF, NAN = math.inf, math.nan


def meaning(code: int, dtype: torch.dtype) -> float:
    """Value of a byte, computed from its bits (Micikevicius et al. 2022, table 1) without a cast."""
    mantissa_bits = 3 if dtype is E4M3 else 2
    bias = 7 if dtype is E4M3 else 15
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code & 0x7F) >> mantissa_bits, code & (2**mantissa_bits - 1)
    if dtype is E4M3 and code & 0x7F == 0x7F:
        return NAN
    if dtype is E5M2 and exponent == 31:
        return sign * INF if mantissa == 0 else NAN
    fraction = mantissa / 2**mantissa_bits
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias)
    return sign * (1 + fraction) * 2.0 ** (exponent - bias)


def codes_of(values: Tensor) -> list[int]:
    return [int(code) for code in values.view(torch.uint8).tolist()]


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16])
def test_all_256_codes_round_trip(dtype: torch.dtype, wide: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    values = codes.view(dtype).to(wide)
    for code, value in zip(range(256), values.tolist(), strict=True):
        expected = meaning(code, dtype)
        assert value == expected or (math.isnan(value) and math.isnan(expected))
    finite = torch.isfinite(values)
    assert torch.equal(cast(values, dtype).view(torch.uint8)[finite], codes[finite])
    assert torch.isnan(cast(values, dtype).float()[torch.isnan(values)]).all()


@pytest.mark.parametrize("dtype", FORMATS)
def test_rounding_is_to_nearest_with_ties_to_even(dtype: torch.dtype) -> None:
    finite = [code for code in range(128) if math.isfinite(meaning(code, dtype))]
    below = torch.tensor([meaning(code, dtype) for code in finite[:-1]])
    above = torch.tensor([meaning(code, dtype) for code in finite[1:]])
    middle = (below + above) / 2
    even = [code if code % 2 == 0 else code + 1 for code in finite[:-1]]
    for sign in (1, -1):
        bit = 0 if sign == 1 else 0x80
        assert codes_of(cast(sign * middle, dtype)) == [code | bit for code in even]
        down, up = middle.nextafter(torch.zeros(())), middle.nextafter(torch.tensor(INF))
        assert codes_of(cast(sign * down, dtype)) == [code | bit for code in finite[:-1]]
        assert codes_of(cast(sign * up, dtype)) == [code | bit for code in finite[1:]]


@contextmanager
def strict_casts() -> Iterator[list[torch.dtype]]:
    """Make a cast above the largest code an error:
    depending on its release, torch saturates or gives NaN or infinity."""
    seen: list[torch.dtype] = []

    class Strict(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is Tensor.to and args[1] in FORMATS:
                seen.append(args[1])
                assert not (args[0].abs() > LARGEST[args[1]]).any(), "the result would depend on the cast"
            return func(*args, **(kwargs or {}))

    with Strict():
        yield seen


@pytest.mark.parametrize("cast", [cast, lambda scaled, dtype: cast_(scaled.clone(), dtype)])
@pytest.mark.parametrize("dtype", FORMATS)
def test_large_values_are_clamped_before_the_cast(
    dtype: torch.dtype, cast: Callable[[Tensor, torch.dtype], Tensor]
) -> None:
    largest = LARGEST[dtype]
    too_large = torch.tensor([largest, largest * 1.01, largest * 1.04, largest * 1.2, 1e30, INF])
    with strict_casts() as seen:
        assert cast(too_large, dtype).float().tolist() == [largest] * 6
        assert cast(-too_large, dtype).float().tolist() == [-largest] * 6
        assert torch.isnan(cast(torch.tensor([NAN, -NAN]), dtype).float()).all()
    assert seen == [dtype] * 3
    with strict_casts(), pytest.raises(AssertionError, match="would depend on the cast"):
        too_large.to(dtype)


@pytest.mark.parametrize("dtype", [*FORMATS, torch.float16])
def test_the_largest_and_smallest_values_are_those_of_the_format(dtype: torch.dtype) -> None:
    assert LARGEST[dtype] == torch.finfo(dtype).max
    assert torch.tensor(SMALLEST[dtype]).to(dtype).float() == SMALLEST[dtype]
    assert torch.tensor(SMALLEST[dtype] / 2).to(dtype).float() == 0.0


@pytest.mark.parametrize(
    ("amax", "dtype", "scale"),
    [
        (10.0, E4M3, 1 / 32),
        (10_000.0, E4M3, 32.0),
        (448.0, E4M3, 1.0),
        (448.5, E4M3, 2.0),
        (224.0, E4M3, 0.5),
        (10.0, E5M2, 1 / 4_096),
        (65_504.0, torch.float16, 1.0),
        (0.0, E4M3, 8.0),
        (INF, E4M3, 8.0),
        (NAN, E4M3, 8.0),
    ],
)
def test_scales_follow_the_amax_and_are_one_if_it_is_zero_or_not_finite(
    amax: float, dtype: torch.dtype, scale: float
) -> None:
    assert scale_for(torch.tensor(amax), dtype, previous=torch.tensor(8.0)) == scale
    if not math.isfinite(amax) or amax == 0:
        assert scale_for(torch.tensor(amax), dtype) == 1.0


@pytest.mark.parametrize("dtype", [*FORMATS, torch.float16])
def test_scales_use_the_range_up_to_a_power_of_two(dtype: torch.dtype) -> None:
    amax = torch.logspace(-25, 25, 1_001)
    scale = scale_for(amax, dtype)
    assert torch.equal(scale.log2(), scale.log2().round())
    reached = amax.double() / scale.double() / LARGEST[dtype]
    assert reached.max() <= 1.0
    assert reached.min() > 0.5


def test_scales_and_their_inverses_are_finite_at_the_limits_of_float32() -> None:
    ends = torch.tensor([torch.finfo(torch.float32).tiny, 1e-45, torch.finfo(torch.float32).max])
    for dtype in FORMATS:
        scale = scale_for(ends, dtype)
        assert torch.isfinite(scale).all() and torch.isfinite(1 / scale).all() and (scale > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("place", [0, 777, 999])
def test_an_amax_is_not_finite_if_a_value_is_not(dtype: torch.dtype, place: int) -> None:
    values = torch.linspace(-3, 2, 1_000).to(dtype)
    assert amax_of(values) == 3.0
    for bad in (NAN, INF, -INF):
        values[place] = bad
        assert amax_of(values) == INF


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_every_code_is_converted_to_the_value_it_represents(dtype: torch.dtype) -> None:
    for format in (E4M3, E5M2):
        codes = torch.arange(256, dtype=torch.uint8).view(format)
        wide = codes.to(dtype)
        finite = torch.isfinite(wide)
        assert torch.equal(widen(codes, dtype)[finite], wide[finite])
    not_numbers = widen(torch.tensor([0x7F, 0xFF], dtype=torch.uint8).view(E4M3), dtype)
    assert not_numbers.tolist() == [480.0, -480.0]  # products ensure that none of these codes counts
