"""The shape of the network."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from trainwright.contracts.attention_parts import AttentionKind
from trainwright.contracts.base import Strict, field_error
from trainwright.contracts.rope_scaling import RopeScalingSpec


class ModelSpec(Strict):
    """A decoder. Its defaults are Llama's: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

    layers: int = Field(default=6, ge=1, le=1_000)
    """Number of transformer blocks."""

    width: int = Field(default=192, ge=8, le=65_536)
    """Size of the residual stream, in features."""

    heads: int = Field(default=6, ge=1, le=1_024)
    """Number of query heads in each attention layer."""

    kv_heads: int | None = Field(default=None, ge=1, le=1_024)
    """Number of key and value heads, shared by groups of query heads. Empty: as many as query heads."""

    attention: AttentionKind = "full"

    qk_norm: bool = False
    """Queries and keys of each head pass an RMSNorm before they are rotated (Qwen3), which keeps their products from growing."""

    sliding_window: int | None = Field(default=None, ge=1, le=1_048_576)
    """Number of tokens that a token attends to, including itself and those just before it (Mistral, Gemma). Empty: all
    before it."""

    sliding_window_pattern: int | None = Field(default=None, ge=2, le=1_000)
    """Every n-th layer attends to all tokens before it, the others to their window. Empty: all layers have the window."""

    head_size: int | None = Field(default=None, ge=2, le=1_024)
    """Features of one head. Empty: width ÷ heads."""

    feed_forward: int | None = Field(default=None, ge=8, le=262_144)
    """Hidden size of the feed-forward network. Empty: 8/3 · width with a gate, 4 · width without, rounded up to a multiple of 32."""

    activation: Literal["swiglu", "geglu", "gelu"] = "swiglu"
    """Activation of the feed-forward network: `swiglu` (Llama) and `geglu` (Gemma) multiply a second projection by SiLU or GELU
    of a gate; `gelu` (GPT) has no gate."""

    norm: Literal["rms", "layer", "layer_without_bias"] = "rms"
    """Norm of the residual stream: `rms` is RMSNorm (Llama), `layer` LayerNorm with a bias (GPT), `layer_without_bias` LayerNorm
    without one."""

    post_norms: bool = False
    """The results of attention and feed-forward network pass a norm of their own before they are added to the residual stream
    (Gemma 2)."""

    biases: Literal["none", "query_key_value", "all"] = "none"
    """Linear layers of blocks that add a bias: `none` (Llama), `query_key_value` (Qwen2), or `all` (GPT)."""

    positions: Literal["rotary", "learned", "none"] = "rotary"
    """How tokens know their positions: `rotary` rotates queries and keys (Llama), `learned` adds a learned vector for each
    position to the embedded token (GPT-2), `none` leaves it to the causal mask (NoPE)."""

    rope_theta: float = Field(default=10_000.0, gt=1.0)
    """Base of the rotary position frequencies."""

    partial_rotary_factor: float = Field(default=1.0, gt=0.0, le=1.0)
    """Fraction of the features of each head that rotary positions rotate (GPT-NeoX, Phi, StableLM)."""

    rope_scaling: RopeScalingSpec | None = None
    """Lower frequencies of rotary positions, for sequences longer than those of an earlier training. Empty: none."""

    no_rope_layer_interval: int | None = Field(default=None, ge=2, le=1_000)
    """Every n-th layer has no rotary positions (SmolLM3, Llama 4). Empty: all layers have them."""

    norm_epsilon: float = Field(default=1e-5, gt=0.0, le=1e-2)
    """Small number that norms add to the mean square, or to the variance."""

    embedding_multiplier: float = Field(default=1.0, gt=0.0, le=1_000.0)
    """Factor of embedded tokens: √width in Gemma, a number that each model chooses in Granite."""

    residual_multiplier: float = Field(default=1.0, gt=0.0, le=10.0)
    """Factor of the results of attention and feed-forward network before they are added to the residual stream (Granite)."""

    attn_logit_softcapping: float | None = Field(default=None, gt=0.0, le=1_000_000.0)
    """Bound c on products of queries and keys, which become c · tanh(product ÷ c) (Gemma 2). Empty: no bound."""

    final_logit_softcapping: float | None = Field(default=None, gt=0.0, le=1_000_000.0)
    """Bound c on logits, which become c · tanh(logit ÷ c) (Gemma 2). Empty: no bound."""

    tied_embeddings: bool = True
    """Use the token embedding as the output projection as well."""

    initializer_std: float = Field(default=0.02, gt=0.0, le=1.0)
    """Standard deviation of the initial weights. For projections into the residual stream it is divided by √(2 · layers)."""

    block: Literal["serial", "parallel"] = "serial"
    """`serial`: attention, then the feed-forward network. `parallel` (PaLM, MegaScale): both read the same normed input, which
    halves the communication of tensor parallelism."""

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        if self.width % self.heads:
            # With a separate head_size the network would work, but transformers refuses its export.
            raise field_error(
                "width", self.width, f"is not divisible by heads ({self.heads}): change one of them"
            )
        if self.heads % self.key_value_heads:
            rule = "must divide heads {}, so that each key head serves the same number of query heads"
            raise field_error("kv_heads", self.key_value_heads, rule.format(self.heads))
        return self

    @model_validator(mode="after")
    def _post_norms_fit(self) -> Self:
        if self.post_norms and self.block == "parallel":
            rule = "needs a separate result of each part, but block parallel adds them first: use false, or block serial"
            raise field_error("post_norms", "true", rule)
        return self

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        if self.positions != "rotary":
            self._refuse_rotary_settings()
        elif self.features_per_head % 2:
            raise field_error(
                "head_size", self.features_per_head, "must be even: rotary positions rotate pairs of features"
            )
        elif self.rotary_features % 2 or not self.rotary_features:
            rule = (
                f"of {self.features_per_head} features per head rotates {self.rotary_features}, but rotary positions "
                f"rotate pairs of features: use {max(2, self.rotary_features // 2 * 2) / self.features_per_head:g}"
            )
            raise field_error("partial_rotary_factor", self.partial_rotary_factor, rule)
        interval = self.no_rope_layer_interval
        if interval is not None and interval > self.layers:
            rule = f"is more than layers {self.layers}, so all layers have rotary positions: lower it, or leave it empty"
            raise field_error("no_rope_layer_interval", interval, rule)
        return self

    def _refuse_rotary_settings(self) -> None:
        rule = f"applies to rotary positions only, but positions is {self.positions}: "
        if self.partial_rotary_factor != 1:
            raise field_error("partial_rotary_factor", self.partial_rotary_factor, rule + "use 1")
        if self.rope_scaling is not None:
            raise field_error("rope_scaling", self.rope_scaling.rope_type, rule + "leave it empty")
        if self.no_rope_layer_interval is not None:
            raise field_error("no_rope_layer_interval", self.no_rope_layer_interval, rule + "leave it empty")

    @model_validator(mode="after")
    def _pattern_has_a_window(self) -> Self:
        pattern = self.sliding_window_pattern
        if pattern is not None and self.sliding_window is None:
            rule = (
                "says which layers have no window, but sliding_window is empty: set it, or leave this empty"
            )
            raise field_error("sliding_window_pattern", pattern, rule)
        if pattern is not None and pattern > self.layers:
            rule = f"is more than layers {self.layers}, so all layers have the window: lower it, or leave it empty"
            raise field_error("sliding_window_pattern", pattern, rule)
        return self

    def window_of_layer(self, layer: int) -> int | None:
        """Tokens that a token attends to in ``layer``, counted from 0; None: all before it."""
        pattern = self.sliding_window_pattern
        return None if pattern is not None and (layer + 1) % pattern == 0 else self.sliding_window

    @property
    def layer_types(self) -> list[str]:
        """What each layer attends to, in the words of `transformers`."""
        windows = map(self.window_of_layer, range(self.layers))
        return ["full_attention" if window is None else "sliding_attention" for window in windows]

    @property
    def rotary_features(self) -> int:
        """Features of each head that rotary positions rotate."""
        return int(self.features_per_head * self.partial_rotary_factor) if self.positions == "rotary" else 0

    def has_rotary_positions(self, layer: int) -> bool:
        """Whether ``layer``, counted from 0, rotates queries and keys."""
        interval = self.no_rope_layer_interval
        return self.positions == "rotary" and (interval is None or (layer + 1) % interval != 0)

    @property
    def no_rope_layers(self) -> list[int]:
        """1 for each layer with rotary positions, otherwise 0, as in `transformers`."""
        return [int(self.has_rotary_positions(layer)) for layer in range(self.layers)]

    @property
    def key_value_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def features_per_head(self) -> int:
        return self.head_size or self.width // self.heads

    @property
    def attention_scale(self) -> float:
        """What products of queries and keys are multiplied by."""
        return float(self.features_per_head**-0.5)

    @property
    def query_features(self) -> int:
        """Features of all query heads."""
        return self.heads * self.features_per_head

    @property
    def key_features(self) -> int:
        """Features of all key heads, and of all value heads."""
        return self.key_value_heads * self.features_per_head

    @property
    def feed_forward_width(self) -> int:
        """Hidden size of the feed-forward block, in features."""
        wanted = 8 * self.width if self.is_gated else 12 * self.width
        return self.feed_forward or -(-wanted // (3 * 32)) * 32

    @property
    def is_gated(self) -> bool:
        """Whether the feed-forward network has a gate."""
        return self.activation != "gelu"
