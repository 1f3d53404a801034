"""Norms of the residual stream: RMSNorm (Zhang and Sennrich 2019), or LayerNorm (Ba et al. 2016) with or without a bias."""

from __future__ import annotations

from torch import nn

from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.linear.norms import LayerNorm, RMSNorm


def build_norm(spec: ModelSpec) -> nn.Module:
    """A norm of the residual stream of ``spec``."""
    if spec.norm == "rms":
        return RMSNorm(spec.width, eps=spec.norm_epsilon)
    return LayerNorm(spec.width, spec.norm_epsilon, has_bias=spec.norm == "layer")
