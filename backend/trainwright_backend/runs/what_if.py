"""Planning a run for GPUs, even if no node of the installation has them.

The joined nodes are ignored, so no plan is refused because of them. Memory is estimated as for any other plan. The time
is estimated from the vendor's peak and an assumed MFU, because no run was measured on these GPUs; the response says so.
"""

from uuid import UUID

from trainwright.contracts.api.plans import GpuModel, RunPlan, WhatIf
from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.flops import training_flops
from trainwright.planner.gpus import as_gpu, gpu_models
from trainwright.planner.plan import Slot, plan
from trainwright.sizes import format_distinct
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import Invalid
from trainwright_backend.datasets.data_resolution import check_data
from trainwright_backend.runs.precision_choice import choose_precision
from trainwright_backend.runs.submission import with_data

ASSUMED_MFU = 0.4
"""What well-tuned trainings of dense decoders reach on several GPUs of one node."""
ASSUMED_FP8_MFU = 0.25
"""As a fraction of the FP8 peak, which is twice the bf16 peak. An FP8 step is estimated to be about 1.25 times as fast as a bf16 step,
because only its matmuls are faster (docs/adr/0026)."""


def estimate_on_gpu(session: Read, team_id: UUID, spec: RunSpec, gpu: str, begin_step: int = 0) -> WhatIf:
    """Plan ``spec`` from ``begin_step`` on, on as many GPUs named ``gpu`` as its resources request.

    Raises:
        Invalid: the GPU is unknown or does not support the run's precision, or the data does not fit the spec.
    """
    model = _named(gpu)
    resources = spec.resources.model_copy(update={"device": Device.CUDA})
    data, _ = check_data(session, team_id, spec.data)
    moved = with_data(spec.model_copy(update={"resources": resources}), data)
    resolved = choose_precision(session, moved).spec
    kind = resolved.precision.kind
    if not as_gpu(model).can_compute(resolved.precision):
        message = f"{kind.value} needs {resolved.precision.hardware}, but {model.name} has {model.capability}: use bf16, or other hardware."
        raise Invalid.at("precision.kind", message, kind.value)
    planned = plan(resolved, cuda=True, slot=Slot(model.name, model.memory_bytes))
    too_large = why_too_large(planned, model)
    flops = training_flops(resolved, begin_step)
    rate, mfu = model.peaks.get(kind.value), ASSUMED_FP8_MFU if kind is PrecisionKind.FP8 else ASSUMED_MFU
    ranks = resources.ranks
    return WhatIf(
        gpu=model,
        nodes=resources.nodes,
        slots_per_node=resources.slots_per_node,
        plan=planned.model_copy(update={"too_large": too_large, "warnings": []}),
        flops=flops,
        assumed_mfu=mfu,
        seconds=None if rate is None else flops / (rate * mfu * ranks),
    )


def why_too_large(planned: RunPlan, gpu: GpuModel) -> str | None:
    """Why the plan's fullest rank does not fit on the GPU; None if it does."""
    needed = max(rank.total for rank in planned.memory)
    if needed <= gpu.memory_bytes:
        return None
    who = "A rank needs" if len(planned.memory) > 1 else "Each rank needs"
    needs, has = format_distinct(needed, gpu.memory_bytes)
    return (
        f"{who} {needs}, and this GPU has {has}. Choose a smaller model or "
        "batch.micro_sequences, memory.recompute, or more GPUs with parallelism.pipeline, parallelism.tensor or parallelism.zero_stage."
    )


def _named(gpu: str) -> GpuModel:
    models = gpu_models()
    for model in models:
        if model.name == gpu:
            return model
    names = ", ".join(model.name for model in models)
    raise Invalid.at("gpu", f"This GPU is not known. Choose one of: {names}.", gpu)
