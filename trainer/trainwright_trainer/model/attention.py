"""Full attention, and the base of its variants. Several query heads share one head of keys and values (grouped-query
attention, Ainslie et al. 2023).

    B sequence   T position   D width   H query heads   G key heads   K features of a head

Attention is causal, over the entire sequence or a window of it (``masks``). A document packed into a sequence also
attends to the documents before it, as in GPT-3, unless a run masks documents (``documents``).

A variant is a subclass in a separate file, a line in ``attention_registry``, and what it declares in
``contracts.attention_parts``. It overrides ``mix``, which gets the matmuls of all layers that are declared to read the
input, or ``forward`` if it does more with its input than project it (``only_projects``). A variant that overrides
``forward`` cannot be chunked (`parallelism.tensor_chunks`). Its constructor gets the sizes of the entire model. Tensor
parallelism shrinks weights afterwards and runs the same code on some of the heads, so the code takes the number of heads
from the shapes of its tensors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from trainwright.contracts.block_parts import attention_weights
from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.linear.bias import optional_bias
from trainwright_trainer.linear.norms import RMSNorm
from trainwright_trainer.model.key_value_cache import KeyValueCache
from trainwright_trainer.model.masks import DenseMasks, Masks
from trainwright_trainer.model.rotary import rotate


class AttentionTables(NamedTuple):
    """The inputs of attention other than the residual stream, the same for all layers of a forward pass."""

    cosines: Tensor
    """(T, R) for R rotated features of a head, or (B, 1, T, R) if the sequences differ in their positions."""

    sines: Tensor
    mask: Any = None
    """The mask of the layers without a window, as their ``Masks`` reads it; None if each token sees all before it."""

    window_mask: Any = None
    """The mask of the layers with a window; None if it is that of the other layers."""

    is_first: Tensor | None = None
    """(B, T, 1): the tokens that begin a document, if documents are masked."""

    cache: KeyValueCache | None = None
    """Keys and values of earlier tokens, while the model writes texts."""


class Attention(nn.Module):
    """(B, T, D) → (B, T, D), without the bias of the last layer, which the block adds."""

    costly_operators: tuple[str, ...] = (
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_fused_attention_overrideable",
    )
    """Operators of ``mix`` whose results selective recomputation saves. Not every torch release has all of them."""

    masks: Masks = DenseMasks()
    """How attention under a mask is computed."""

    def __init__(self, spec: ModelSpec, layer: int = 0) -> None:
        super().__init__()
        self.first_names = _input_layers(spec)
        self.window = spec.window_of_layer(layer)
        self.softcap = spec.attn_logit_softcapping
        self.has_rotary_positions = spec.has_rotary_positions(layer)
        self.head_size = spec.features_per_head
        self.group = spec.heads // spec.key_value_heads
        queries, keys = spec.heads * self.head_size, spec.key_value_heads * self.head_size
        self.query = nn.Linear(spec.width, queries, bias=False)
        self.key = nn.Linear(spec.width, keys, bias=False)
        self.value = nn.Linear(spec.width, keys, bias=False)
        self.query_norm, self.key_norm = _head_norm(spec), _head_norm(spec)
        biased = spec.biases != "none"
        self.query_bias, self.key_bias = optional_bias(queries, biased), optional_bias(keys, biased)
        self.value_bias = optional_bias(keys, biased)
        self.output = nn.Linear(queries, spec.width, bias=False)

    @property
    def first_layers(self) -> list[nn.Module]:
        """The layers that are declared to read the input, in the order of their declaration."""
        return [self.get_submodule(name) for name in self.first_names]

    def forward(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        mixed_BTF = self.mix(tables, *(layer(x_BTD) for layer in self.first_layers))
        mixed_BTD: Tensor = self.output(mixed_BTF)
        return mixed_BTD

    def mix(self, tables: AttentionTables, q_BTF: Tensor, k_BTF: Tensor, v_BTF: Tensor, /) -> Tensor:
        """Attention between the projections, which have no biases yet, with the heads next to each other: (B, T, H·K),
        (B, T, G·K) and (B, T, G·K) → (B, T, H·K). A variant gets the matmuls of its other ``first_layers`` after these.
        """
        q_BTF, k_BTF, v_BTF = self.query_bias(q_BTF), self.key_bias(k_BTF), self.value_bias(v_BTF)
        q_BHTK = self._rotated(self.query_norm(self._heads(q_BTF)), tables)
        k_BGTK = self._rotated(self.key_norm(self._heads(k_BTF)), tables)
        mixed_BHTK = self.attend(q_BHTK, k_BGTK, self._heads(v_BTF), tables)
        return mixed_BHTK.transpose(1, 2).flatten(2)

    def _rotated(self, x_BHTK: Tensor, tables: AttentionTables) -> Tensor:
        return rotate(x_BHTK, tables.cosines, tables.sines) if self.has_rotary_positions else x_BHTK

    def attend(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, tables: AttentionTables) -> Tensor:
        """Attention of each head, (B, H, T, K). A variant with another softmax overrides it; then it handles the masks and the
        cache of ``tables`` itself, or refuses the options that have them.
        """
        cache = tables.cache
        if cache is not None:
            k_BGTK, v_BGTK = cache.extend(self, k_BGTK, v_BGTK)
            if cache.starts is not None:
                visible = cache.mask(q_BHTK.shape[2], k_BGTK.shape[2], self.window, q_BHTK.device)
                return DenseMasks().attend(q_BHTK, k_BGTK, v_BGTK, visible, self.softcap)
        has_own = self.window is not None and tables.window_mask is not None
        mask = tables.window_mask if has_own else tables.mask
        if mask is not None:
            return self.masks.attend(q_BHTK, k_BGTK, v_BGTK, mask, self.softcap)
        assert self.softcap is None, "attention with a soft cap has a mask"
        mixed_BHTK: Tensor = scaled_dot_product_attention(
            q_BHTK, k_BGTK, v_BGTK, is_causal=True, enable_gqa=self.group > 1
        )
        return mixed_BHTK

    def _heads(self, x_BTF: Tensor) -> Tensor:
        return x_BTF.view(*x_BTF.shape[:2], -1, self.head_size).transpose(1, 2)


def only_projects(variant: type[Attention]) -> bool:
    """Whether a variant does nothing with its input but project it, so that other ways to multiply it may replace
    ``forward``.
    """
    return variant.forward is Attention.forward


def _input_layers(spec: ModelSpec) -> tuple[str, ...]:
    """Names of the layers that are declared to read the input."""
    weights = attention_weights(spec).items()
    return tuple(name.removesuffix(".weight") for name, weight in weights if weight.reads_input)


def _head_norm(spec: ModelSpec) -> nn.Module:
    """Norm over the features of each head (Henry et al. 2020, arXiv 2010.04245; with RMSNorm in Qwen3, arXiv 2505.09388)."""
    return RMSNorm(spec.features_per_head, eps=spec.norm_epsilon) if spec.qk_norm else nn.Identity()
