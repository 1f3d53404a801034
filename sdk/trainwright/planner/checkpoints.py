"""Sizes of a run's checkpoints, before it starts.

A checkpoint has each parameter and its two moments once, in any layout. In bytes per parameter:

    fp32, bf16, FP8 O1    4 + 4 + 4          float32 weights and moments; Muon has one state of matrices in blocks
    FP8 O2, O3            2 + 1 + 2          float16 masters, moments in E4M3 and float16
    with moments: block   2 + 1 + 1 + 1/16   both moments in E4M3, with a float32 scale per 128 elements

An export has each parameter in its ``export_format``. Everything that does not grow with the model is not counted: manifest,
scales per tensor, tokenizer.
"""

from __future__ import annotations

from trainwright.contracts.block_parts import block_weights
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.flops import count_parameters

_EXPORTED = {"fp32": 4, "bf16": 2}


def state_bytes(spec: RunSpec) -> int:
    """Size of one checkpoint."""
    parameters, fp8 = (
        count_parameters(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens).total,
        spec.precision.fp8,
    )
    if fp8 is None:
        return 4 * (parameters + _state_values(spec, parameters))
    formats = (fp8.master_format, *spec.optimizer.formats_in_fp8(fp8))
    return int(parameters * sum(format.bytes_per_value for format in formats))


def export_bytes(spec: RunSpec) -> int:
    """Size of the export."""
    parameters = count_parameters(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens).total
    return parameters * _EXPORTED[spec.export_format]


def stored_bytes(spec: RunSpec, begin_step: int = 0) -> int:
    """Size of everything that remains when the run has ended: the kept checkpoints among those after ``begin_step``, and the
    export. The checkpoint that a fork starts from belongs to its parent."""
    every = spec.checkpoint.every_steps
    saved = -(-spec.schedule.steps // every) - begin_step // every
    return min(saved, spec.checkpoint.keep) * state_bytes(spec) + export_bytes(spec)


def _state_values(spec: RunSpec, parameters: int) -> int:
    """Values that the optimizer keeps of all weights."""
    model, optimizer = spec.model, spec.optimizer
    values, in_blocks = 0, 0
    for name, weight in block_weights(model).items():
        size = model.layers * weight.size(model)
        values += size * len(optimizer.states_of(f"layers.0.{name}", len(weight.shape(model))))
        in_blocks += size
    return values + (parameters - in_blocks) * len(optimizer.states)
