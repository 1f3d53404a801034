"""Full attention, and what variants of attention share: several query heads share one head of keys and values
(grouped-query attention, Ainslie et al. 2023).

    B sequence   T position   D width   H query heads   G key heads   K features of a head

Attention is causal over the entire sequence: documents packed into one see those before them, as in GPT-3.

A variant is a subclass in a file of its own, a line in ``attention_registry``, a name in ``contracts.model_spec`` and
what it declares in ``contracts.block_parts``. It overrides ``mix``, or ``forward`` if it does more with its input than
project it; the latter cannot be chunked (`parallelism.tensor_chunks`). Its constructor gets the sizes of the entire model.
Tensor parallelism shrinks weights afterwards and runs the same code on some of the heads: so it counts heads by the
shapes of its tensors.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.model.rotary import rotate


class Attention(nn.Module):
    """(B, T, D) → (B, T, D)."""

    costly_operators: tuple[str, ...] = (
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_fused_attention_overrideable",
    )
    """Operators of ``mix`` whose results selective recomputation saves. Not every torch release has all of them."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.head_size = spec.features_per_head
        self.group = spec.heads // spec.key_value_heads
        queries, keys = spec.heads * self.head_size, spec.key_value_heads * self.head_size
        self.query = nn.Linear(spec.width, queries, bias=False)
        self.key = nn.Linear(spec.width, keys, bias=False)
        self.value = nn.Linear(spec.width, keys, bias=False)
        self.output = nn.Linear(queries, spec.width, bias=False)

    def forward(self, x_BTD: Tensor, cosines_TK: Tensor, sines_TK: Tensor) -> Tensor:
        mixed: Tensor = self.output(
            self.mix(self.query(x_BTD), self.key(x_BTD), self.value(x_BTD), cosines_TK, sines_TK)
        )
        return mixed

    def mix(
        self, q_BTF: Tensor, k_BTF: Tensor, v_BTF: Tensor, cosines_TK: Tensor, sines_TK: Tensor
    ) -> Tensor:
        """Attention between projections, heads side by side: (B, T, H·K), (B, T, G·K) and (B, T, G·K) → (B,
        T, H·K).
        """
        q_BHTK = rotate(self._heads(q_BTF), cosines_TK, sines_TK)
        k_BGTK = rotate(self._heads(k_BTF), cosines_TK, sines_TK)
        v_BGTK = self._heads(v_BTF)
        mixed_BHTK: Tensor = scaled_dot_product_attention(
            q_BHTK, k_BGTK, v_BGTK, is_causal=True, enable_gqa=self.group > 1
        )
        return mixed_BHTK.transpose(1, 2).flatten(2)

    def _heads(self, x_BTF: Tensor) -> Tensor:
        return x_BTF.view(*x_BTF.shape[:2], -1, self.head_size).transpose(1, 2)
