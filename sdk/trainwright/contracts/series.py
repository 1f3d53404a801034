"""The registry of series: every metric of a run, with its title and unit. Charts and responses keep this order."""

from __future__ import annotations

from enum import StrEnum

from trainwright.contracts.base import Envelope


class SeriesGroup(StrEnum):
    """What a series is about."""

    LEARNING = "learning"
    SPEED = "speed"
    MEMORY = "memory"
    TIME = "time"
    FP8 = "fp8"
    HARDWARE = "hardware"
    """Measured by the agent of the run's first node every few seconds, and averaged over the steps in between."""


class SeriesInfo(Envelope):
    """What a series means."""

    name: str
    title: str
    """Title of its chart, without the unit."""

    unit: str
    """Empty for a number without one; `fraction` is a share from 0 to 1."""

    group: SeriesGroup
    description: str
    fp8_only: bool = False
    """Only runs with FP8 layers have it."""

    derived: bool = False
    """Computed from another series when it is requested by name; never stored or streamed."""


class SeriesFamily(Envelope):
    """Many series of one kind, `<name>/<member>`, which are returned and streamed only when they are requested by name."""

    name: str
    title: str
    unit: str
    group: SeriesGroup
    member: str
    description: str
    fp8_only: bool = False


class SeriesRegistry(Envelope):
    """All series that this version of the platform knows. A run may have others, of a newer or a modified trainer."""

    series: list[SeriesInfo]
    families: list[SeriesFamily]


ELAPSED = "elapsed_seconds"
RANK_SERIES = "rank_seconds"
STRAGGLER_SERIES = "straggler_score"


SERIES: tuple[SeriesInfo, ...] = (
    SeriesInfo(
        name="loss",
        title="loss",
        unit="nats/token",
        group=SeriesGroup.LEARNING,
        description="Mean cross-entropy over the tokens of the global batch.",
    ),
    SeriesInfo(
        name="validation_loss",
        title="validation loss",
        unit="nats/token",
        group=SeriesGroup.LEARNING,
        description="Mean cross-entropy over the validation split.",
    ),
    SeriesInfo(
        name="grad_norm",
        title="grad norm",
        unit="",
        group=SeriesGroup.LEARNING,
        description="L2 norm of all gradients before clipping.",
    ),
    SeriesInfo(
        name="learning_rate",
        title="learning rate",
        unit="",
        group=SeriesGroup.LEARNING,
        description="Learning rate of the step, before `optimizer.learning_rate_factors`.",
    ),
    SeriesInfo(
        name="tokens",
        title="tokens",
        unit="tokens",
        group=SeriesGroup.LEARNING,
        description="Tokens trained on since step 0.",
    ),
    SeriesInfo(
        name="tokens_per_second",
        title="tokens/s",
        unit="tokens/s",
        group=SeriesGroup.SPEED,
        description="Tokens per second over all ranks.",
    ),
    SeriesInfo(
        name="mfu",
        title="MFU",
        unit="fraction",
        group=SeriesGroup.SPEED,
        description="Model FLOPs utilization: model FLOP/s as a fraction of the device's peak; missing where the peak is unknown.",
    ),
    SeriesInfo(
        name="bf16_mfu",
        title="MFU of the BF16 peak",
        unit="fraction",
        group=SeriesGroup.SPEED,
        description="Model FLOP/s as a fraction of the device's BF16 peak.",
        fp8_only=True,
    ),
    SeriesInfo(
        name="hfu",
        title="HFU",
        unit="fraction",
        group=SeriesGroup.SPEED,
        description="Hardware FLOPs utilization: as MFU, with the FLOPs of recomputed activations.",
    ),
    SeriesInfo(
        name="memory_bytes",
        title="memory of the rank with the most",
        unit="bytes",
        group=SeriesGroup.MEMORY,
        description="Peak memory of the rank that uses most.",
    ),
    SeriesInfo(
        name="eta_seconds",
        title="time left",
        unit="s",
        group=SeriesGroup.TIME,
        description="Estimated time to the last step.",
    ),
    SeriesInfo(
        name="seconds",
        title="step time",
        unit="s",
        group=SeriesGroup.TIME,
        description="Duration of one step. The durations of its parts sum to it.",
    ),
    SeriesInfo(
        name="data_seconds",
        title="data, time per step",
        unit="s",
        group=SeriesGroup.TIME,
        description="Part of a step spent on waiting for data.",
    ),
    SeriesInfo(
        name="forward_seconds",
        title="forward, time per step",
        unit="s",
        group=SeriesGroup.TIME,
        description="Part of a step spent on forward passes.",
    ),
    SeriesInfo(
        name="backward_seconds",
        title="backward, time per step",
        unit="s",
        group=SeriesGroup.TIME,
        description="Part of a step spent on backward passes.",
    ),
    SeriesInfo(
        name="collectives_seconds",
        title="collectives, time per step",
        unit="s",
        group=SeriesGroup.TIME,
        description="Part of a step spent on communication between ranks.",
    ),
    SeriesInfo(
        name="optimizer_seconds",
        title="optimizer, time per step",
        unit="s",
        group=SeriesGroup.TIME,
        description="Part of a step spent on the optimizer.",
    ),
    SeriesInfo(
        name="other_seconds",
        title="other, time per step",
        unit="s",
        group=SeriesGroup.TIME,
        description="Part of a step spent on metrics and their report, since the end of the last step. Validation and checkpoints do not count.",
    ),
    SeriesInfo(
        name="skipped_steps",
        title="skipped steps",
        unit="steps",
        group=SeriesGroup.FP8,
        description="Steps since step 0 that changed no weight because a gradient was not finite.",
        fp8_only=True,
    ),
    SeriesInfo(
        name="fp8_saturated",
        title="FP8 clamped",
        unit="fraction",
        group=SeriesGroup.FP8,
        description=(
            "Fraction of the inputs and output gradients of all FP8 layers that were clamped because their scale was too small "
            "for their largest value; 0 where scales come from the current maximum."
        ),
        fp8_only=True,
    ),
    SeriesInfo(
        name="fp8_underflow",
        title="FP8 underflow",
        unit="fraction",
        group=SeriesGroup.FP8,
        description="Fraction of all gradient values that became zero.",
        fp8_only=True,
    ),
    SeriesInfo(
        name="fp8_lost_updates",
        title="FP8 lost updates",
        unit="fraction",
        group=SeriesGroup.FP8,
        description="Fraction of the updated weights that rounding left unchanged.",
        fp8_only=True,
    ),
    SeriesInfo(
        name="fp8_smallest_headroom",
        title="FP8 smallest headroom",
        unit="",
        group=SeriesGroup.FP8,
        description="Smallest headroom factor μ of a gradient.",
        fp8_only=True,
    ),
    SeriesInfo(
        name="cpu_utilization",
        title="node CPU",
        unit="fraction",
        group=SeriesGroup.HARDWARE,
        description="Fraction of the time of all the node's cores in which they worked, for this run or anything else.",
    ),
    SeriesInfo(
        name="run_cpu_cores",
        title="run CPU",
        unit="cores",
        group=SeriesGroup.HARDWARE,
        description="CPU seconds per second of all ranks.",
    ),
    SeriesInfo(
        name="node_memory_bytes",
        title="node memory",
        unit="bytes",
        group=SeriesGroup.HARDWARE,
        description="Memory of the node that is in use, by this run or anything else.",
    ),
    SeriesInfo(
        name="run_memory_bytes",
        title="run memory",
        unit="bytes",
        group=SeriesGroup.HARDWARE,
        description="Resident memory of all ranks' processes. Pages that several processes share are counted for each.",
    ),
    SeriesInfo(
        name="node_disk_bytes",
        title="node disk",
        unit="bytes",
        group=SeriesGroup.HARDWARE,
        description="Space in use on the disk with the agent's data folder.",
    ),
    SeriesInfo(
        name="mean_gpu_utilization",
        title="GPU utilization",
        unit="fraction",
        group=SeriesGroup.HARDWARE,
        description="Fraction of the time in which a GPU computed anything, mean of the run's GPUs.",
    ),
    SeriesInfo(
        name="max_gpu_memory_bytes",
        title="memory of the fullest GPU",
        unit="bytes",
        group=SeriesGroup.HARDWARE,
        description="Memory in use on the run's fullest GPU.",
    ),
    SeriesInfo(
        name="total_gpu_power_watts",
        title="GPU power",
        unit="W",
        group=SeriesGroup.HARDWARE,
        description="Electrical power of all the run's GPUs.",
    ),
    SeriesInfo(
        name="max_gpu_temperature_celsius",
        title="temperature of the hottest GPU",
        unit="°C",
        group=SeriesGroup.HARDWARE,
        description="Temperature of the run's hottest GPU.",
    ),
    SeriesInfo(
        name=ELAPSED,
        title="training time",
        unit="s",
        group=SeriesGroup.TIME,
        description="Training time up to each step, the sum of `seconds`.",
        derived=True,
    ),
)
"""Every trainer writes all series except derived ones and those of the hardware; those with ``fp8_only`` only in FP8
runs. The FP8 series except ``skipped_steps`` are measured every few steps. Agents measure the hardware. Series of GPUs
exist only on GPUs."""

FAMILIES: tuple[SeriesFamily, ...] = (
    SeriesFamily(
        name="trust_ratio",
        title="trust ratio",
        unit="",
        group=SeriesGroup.LEARNING,
        member="min, median or max",
        description=(
            "How far LAMB moves a matrix in a step, as a multiple of the learning rate times its direction: the smallest, "
            "median and largest of all matrices, every 10 steps."
        ),
    ),
    SeriesFamily(
        name="fp8_amax",
        title="largest absolute value",
        unit="",
        group=SeriesGroup.FP8,
        member="tensor",
        description=(
            "Largest absolute value of a tensor: a weight's canonical name with `:weight`, `:gradient`, `:input` or "
            "`:output_gradient` behind it."
        ),
        fp8_only=True,
    ),
    SeriesFamily(
        name="fp8_scale",
        title="scale",
        unit="",
        group=SeriesGroup.FP8,
        member="tensor",
        description="Number that multiplies a tensor's stored values to get real ones; tensors are named as in `fp8_amax`.",
        fp8_only=True,
    ),
    SeriesFamily(
        name=RANK_SERIES,
        title="time by rank",
        unit="s",
        group=SeriesGroup.TIME,
        member="rank:part",
        description="Seconds of a part of one step on one rank; only with several ranks.",
    ),
    SeriesFamily(
        name=STRAGGLER_SERIES,
        title="straggler score by rank",
        unit="fraction",
        group=SeriesGroup.TIME,
        member="rank",
        description=(
            "How much longer a rank computes than the median of the other ranks with the same layers, over the last 100 steps. "
            "Time in collectives does not count. On CPUs only ranks of other nodes are compared."
        ),
    ),
    SeriesFamily(
        name="rank_cpu_cores",
        title="CPU by rank",
        unit="cores",
        group=SeriesGroup.HARDWARE,
        member="rank",
        description="CPU seconds per second of one rank.",
    ),
    SeriesFamily(
        name="rank_memory_bytes",
        title="memory by rank",
        unit="bytes",
        group=SeriesGroup.HARDWARE,
        member="rank",
        description="Resident memory of one rank's processes.",
    ),
    SeriesFamily(
        name="gpu_utilization",
        title="utilization by GPU",
        unit="fraction",
        group=SeriesGroup.HARDWARE,
        member="GPU",
        description="Fraction of the time in which one GPU of the run computed anything.",
    ),
    SeriesFamily(
        name="gpu_memory_bytes",
        title="memory by GPU",
        unit="bytes",
        group=SeriesGroup.HARDWARE,
        member="GPU",
        description="Memory in use on one GPU of the run.",
    ),
    SeriesFamily(
        name="gpu_power_watts",
        title="power by GPU",
        unit="W",
        group=SeriesGroup.HARDWARE,
        member="GPU",
        description="Electrical power of one GPU of the run.",
    ),
    SeriesFamily(
        name="gpu_temperature_celsius",
        title="temperature by GPU",
        unit="°C",
        group=SeriesGroup.HARDWARE,
        member="GPU",
        description="Temperature of one GPU of the run.",
    ),
)

RENAMED_SERIES = {"fp8_flushed": "fp8_underflow"}
"""Names that older trainers write and older clients request, and the current names."""

STORED_SERIES = tuple(info.name for info in SERIES if not info.derived)
FP8_SERIES = frozenset(info.name for info in SERIES if info.fp8_only)
HARDWARE_SERIES = frozenset(info.name for info in SERIES if info.group is SeriesGroup.HARDWARE)
_UNITS = {info.name: info.unit for info in SERIES} | {family.name: family.unit for family in FAMILIES}


def unit_of(name: str) -> str:
    """The unit of a series or of a family's member; empty for a series that is not registered."""
    return _UNITS.get(name.partition("/")[0], "")


def current_name(name: str) -> str:
    """The current name of a series."""
    return RENAMED_SERIES.get(name, name)
