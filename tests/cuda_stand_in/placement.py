"""CPU tensors that report being on a GPU, and are treated accordingly.

The memory of a tensor records the device that it simulates; views share it. Below autograd, a dispatch mode turns each
operator for a GPU into the CPU's, marks what the operator allocates, and refuses what a GPU refuses: operands on two
devices, scaled matmuls in a layout that tensor cores cannot read, too large an allocation, and, while the host must not
wait, values read from the device.

Methods that read the real device in C++, such as ``Tensor.to``, are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from trainwright_trainer.fp8.compute.cast_transpose import in_torch
from trainwright_trainer.fp8.compute.matmul import Operand, dequantize

CPU = torch.device("cpu")
_MARK = "stands_for"

_real_device: Callable[[Tensor], torch.device] = torch._C.TensorBase.device.__get__
_real_to, _real_tensor = Tensor.to, torch.tensor

_READS_VALUES = {
    "aten::_local_scalar_dense",
    "aten::equal",
    "aten::is_nonzero",
    "aten::masked_select",
    "aten::nonzero",
}
"""Operators that make the host wait for the device. Indexing by a mask does too: the host allocates what it selects."""

_MASKS = (torch.bool, torch.uint8)

_TAKES_TWO_DEVICES = ("aten::_foreach_copy_", "aten::index.Tensor", "aten::set_", "c10d::")


class Host:
    """What the host may do, and the memory that it has pinned."""

    def __init__(self, with_index: Callable[[Any], torch.device]) -> None:
        """``with_index`` names the GPU that a device without an index means, and refuses one that does not exist."""
        self.with_index = with_index
        self.may_wait = True
        self.pinned: dict[int, int] = {}
        """First address: bytes."""

    def wait(self) -> None:
        if not self.may_wait:
            raise RuntimeError("called a synchronizing CUDA operation")

    def is_pinned(self, tensor: Tensor) -> bool:
        address = tensor.data_ptr()
        return any(first <= address < first + size for first, size in self.pinned.items())

    def check_copy(
        self, source: Tensor, target: torch.device, on_host: Tensor | None, asynchronous: bool
    ) -> None:
        """A copy between devices waits unless it is asynchronous and the host's memory is pinned."""
        if device_of(source) != target and not (
            asynchronous and on_host is not None and self.is_pinned(on_host)
        ):
            self.wait()


def device_of(tensor: Tensor) -> torch.device:
    """The device that ``tensor`` is on or simulates."""
    real = _real_device(tensor)
    return getattr(tensor.untyped_storage(), _MARK, real) if real.type == "cpu" else real


def _mark(tensor: Tensor, device: torch.device) -> Tensor:
    setattr(tensor.untyped_storage(), _MARK, device)
    return tensor


class OnStandIn(TorchDispatchMode):
    """Runs operators for a GPU on the CPU."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = func.name(), dict(kwargs or {})
        tensors = list(_tensors((*args, *kwargs.values())))
        devices = [device_of(tensor) for tensor in tensors]
        gpu = next((device for device in devices if device.type == "cuda"), None)
        # A cast requests the device that the tensor is really on; moves come through ``_to``.
        asked = None if name == "aten::_to_copy" and gpu is not None else kwargs.get("device")
        if asked is not None:
            asked = self._host.with_index(asked)
            kwargs["device"] = CPU if asked.type == "cuda" else asked
        if gpu is not None:
            self._check(name, tensors, devices, args, kwargs)
        elif asked is None or asked.type != "cuda":
            return func(*args, **kwargs)
        given = {tensor.untyped_storage()._cdata for tensor in tensors}
        out = _run(name, func, args, kwargs)
        for tensor in _tensors((out,)):
            if tensor.untyped_storage()._cdata not in given:
                _mark(tensor, asked or gpu)
        return out

    def _check(
        self,
        name: str,
        tensors: list[Tensor],
        devices: list[torch.device],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        selects = name == "aten::index.Tensor" and any(tensor.dtype in _MASKS for tensor in tensors[1:])
        if name in _READS_VALUES or selects:
            self._host.wait()
        if name == "aten::copy_":
            target, source = tensors
            on_host = target if devices[0].type == "cpu" else source
            asynchronous = kwargs.get("non_blocking", len(args) > 2 and args[2])
            self._host.check_copy(source, devices[0], on_host, asynchronous)
        elif not name.startswith(_TAKES_TWO_DEVICES):
            # A host scalar without dims works with any device.
            found = {
                device
                for device, tensor in zip(devices, tensors, strict=True)
                if tensor.ndim or device.type == "cuda"
            }
            if len(found) > 1:
                where = ", ".join(sorted(map(str, found)))
                raise RuntimeError(
                    f"{name}: expected all tensors to be on the same device, but found {where}"
                )


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _run(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        if name in _KERNELS:
            on_meta = {given: _to_meta(value) for given, value in kwargs.items()}
            func(*map(_to_meta, args), **on_meta)  # torch checks a GPU's rules on meta tensors
            return _KERNELS[name](*args, **kwargs)
        return func(*args, **kwargs)
    except RuntimeError as error:
        if "DefaultCPUAllocator" in str(error):
            raise torch.OutOfMemoryError(str(error)) from error
        raise


def _to_meta(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: None = None,
    scale: None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    return ((a.float() * scale_a) @ (b.float() * scale_b)).to(out_dtype)


def _multiply_blocks(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    return (dequantize(Operand(a, scale_a)) @ dequantize(Operand(b, scale_b)).t()).bfloat16()


def _cast_and_transpose_into(x_RC: Tensor, factor: Tensor, codes_RC: Tensor, codes_CR: Tensor) -> None:
    for codes, found in zip((codes_RC, codes_CR), in_torch(x_RC, factor, codes_RC.dtype), strict=True):
        codes.copy_(found)


def _addmm_with_dtype(
    given: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, *, beta: int = 1, alpha: int = 1, out: Tensor
) -> Tensor:
    return out.copy_(beta * given + alpha * (a.to(out_dtype) @ b.to(out_dtype)))


def _add_weight_gradient(total_NK: Tensor, dy_MN: Tensor, x_MK: Tensor) -> None:
    total_NK.addmm_(dy_MN.t().to(total_NK.dtype), x_MK.to(total_NK.dtype))


_KERNELS: dict[str, Callable[..., Any]] = {
    "aten::_scaled_mm": _scaled_mm,
    "aten::addmm.dtype_out": _addmm_with_dtype,
    "trainwright::add_weight_gradient": _add_weight_gradient,
    "trainwright::multiply_blocks": _multiply_blocks,
    "trainwright::cast_and_transpose": in_torch,
    "trainwright::cast_and_transpose_into": _cast_and_transpose_into,
    "trainwright::transpose_codes": lambda codes_RC, after: codes_RC.t().contiguous(),
}
"""Matmuls of tensor cores, which CPUs lack or take seconds for, and kernels in Triton."""


def _to(host: Host, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """``Tensor.to``."""
    copy = kwargs.pop("copy", False)
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    device, dtype, asynchronous, _ = torch._C._nn._parse_to(*args, **kwargs)
    here, dtype = device_of(tensor), dtype or tensor.dtype
    target = here if device is None else host.with_index(device)
    if target == here or "meta" in (target.type, here.type):
        return _real_to(tensor, CPU if target.type == "cuda" else target, dtype, copy=copy)
    host.check_copy(tensor, target, tensor if here.type == "cpu" else None, asynchronous)
    return _mark(_real_to(tensor, dtype=dtype, copy=True), target)


def _tensor(host: Host, data: Any, device: Any = None, **kwargs: Any) -> Tensor:
    """``torch.tensor``."""
    made = _real_tensor(data, **kwargs)
    return made if device is None else _to(host, made, device)


def _new_tensor(host: Host, tensor: Tensor, data: Any, **kwargs: Any) -> Tensor:
    """``Tensor.new_tensor``."""
    return _tensor(host, data, **{"device": device_of(tensor), "dtype": tensor.dtype} | kwargs)


def _pin(host: Host, tensor: Tensor) -> Tensor:
    """``Tensor.pin_memory``."""
    copy = tensor.clone()
    host.pinned[copy.data_ptr()] = copy.untyped_storage().nbytes()
    return copy


@contextmanager
def tensors_stand_in(host: Host) -> Iterator[None]:
    """In this thread, and in autograd's work for it, tensors can be on GPUs."""

    def method(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: function(host, *args, **kwargs)

    methods = {
        "device": property(device_of),
        "is_cuda": property(lambda tensor: device_of(tensor).type == "cuda"),
        "is_cpu": property(lambda tensor: device_of(tensor).type == "cpu"),
        "to": method(_to),
        "cpu": lambda tensor: _to(host, tensor, CPU),
        "cuda": lambda tensor, device="cuda": _to(host, tensor, device),
        "new_tensor": method(_new_tensor),
        "pin_memory": method(_pin),
        "is_pinned": lambda tensor: host.is_pinned(tensor),
        "record_stream": lambda tensor, stream: None,
    }
    with (
        patch.multiple(Tensor, create=True, **methods),
        patch.object(torch, "tensor", partial(_tensor, host)),
        OnStandIn(host),
    ):
        yield
