"""The model of this folder in plain PyTorch: no class of `transformers` computes it.

It needs torch and safetensors, and tokenizers for text. From Python, in this folder:

    from model import load

    model = load(".")
    logits = model(tokens)      # (B, T) token ids → (B, T, V)
    ids = model.generate(ids, new_tokens=20)

On the command line: `python model.py "Once upon a time" --tokens 50`.

    B sequence   T position   D width   F hidden   H query heads   G key heads   K features of a head   R of them rotated
    V vocabulary
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

_FIELDS = {
    "layers",
    "width",
    "heads",
    "kv_heads",
    "head_size",
    "feed_forward",
    "rope_theta",
    "norm_epsilon",
    "tied_embeddings",
    "initializer_std",
    "sliding_window",
    "sliding_window_pattern",
    "qk_norm",
    "embedding_multiplier",
    "residual_multiplier",
    "partial_rotary_factor",
    "rope_scaling",
    "no_rope_layer_interval",
    "post_norms",
    "attn_logit_softcapping",
    "final_logit_softcapping",
}
"""Settings that this file supports besides ``_CHOICES``. It refuses others, instead of computing something else."""

_CHOICES = {
    "attention": ("full", "localized_filtering"),
    "block": ("serial", "parallel"),
    "activation": ("swiglu", "geglu", "gelu"),
    "norm": ("rms", "layer", "layer_without_bias"),
    "biases": ("none", "query_key_value", "all"),
    "positions": ("rotary", "learned", "none"),
    "rope_scaling.rope_type": ("llama3", "yarn"),
}
"""Settings that select a computation, and their values; the first is that of a folder without the setting."""

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of rotary positions, (T, R) each."""


def _softcapped(x: Tensor, cap: float | None) -> Tensor:
    """c · tanh(x / c), or ``x`` itself without a cap (Gemma 2, arXiv 2408.00118)."""
    return x if cap is None else (x / cap).tanh() * cap


class Attention(nn.Module):
    """Causal attention whose query heads share heads of keys and values. A layer may have a window: its tokens attend to
    at most that many tokens, including themselves. A layer may have rotary positions.
    """

    def __init__(self, config: dict[str, Any], layer: int) -> None:
        super().__init__()
        pattern = config.get("sliding_window_pattern")
        is_full = pattern is not None and (layer + 1) % pattern == 0
        self.window = None if is_full else config.get("sliding_window")
        self.softcap = config.get("attn_logit_softcapping")
        interval = config.get("no_rope_layer_interval")
        is_rotary = config.get("positions", "rotary") == "rotary"
        self.rotates = is_rotary and (interval is None or (layer + 1) % interval != 0)
        self.head_size = config["head_size"]
        queries, keys = config["heads"] * self.head_size, config["kv_heads"] * self.head_size
        self.query = nn.Linear(config["width"], queries, bias=False)
        self.key = nn.Linear(config["width"], keys, bias=False)
        self.value = nn.Linear(config["width"], keys, bias=False)
        self.query_norm, self.key_norm = (
            nn.RMSNorm(self.head_size, eps=config["norm_epsilon"]) if config.get("qk_norm") else nn.Identity()
            for _ in range(2)
        )
        biased = config.get("biases", "none") != "none"
        self.query_bias, self.key_bias = _bias(queries, biased), _bias(keys, biased)
        self.value_bias = _bias(keys, biased)
        self.output = nn.Linear(queries, config["width"], bias=False)
        self.filter = (
            LocalFilter(config["width"]) if config.get("attention") == "localized_filtering" else None
        )

    def forward(self, x_BTD: Tensor, rotation: Rotation) -> Tensor:
        filtered_BTD = x_BTD if self.filter is None else self.filter(x_BTD)
        q_BTF = self.query_bias(self.query(filtered_BTD))
        k_BTF = self.key_bias(self.key(filtered_BTD))
        q_BHTK, k_BGTK = self.query_norm(self._heads(q_BTF)), self.key_norm(self._heads(k_BTF))
        if self.rotates:
            q_BHTK, k_BGTK = _rotate(q_BHTK, rotation), _rotate(k_BGTK, rotation)
        v_BGTK = self._heads(self.value_bias(self.value(x_BTD)))
        group = q_BHTK.shape[1] // k_BGTK.shape[1]
        k_BHTK, v_BHTK = (each.repeat_interleave(group, 1) for each in (k_BGTK, v_BGTK))
        mask_TT = self._mask(x_BTD.shape[1], x_BTD.device)
        if self.softcap is None:
            mixed_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, attn_mask=mask_TT)
        else:
            scores_BHTT = (q_BHTK @ k_BHTK.transpose(-1, -2)).float() * self.head_size**-0.5
            capped_BHTT = _softcapped(scores_BHTT, self.softcap).masked_fill(~mask_TT, -torch.inf)
            mixed_BHTK = capped_BHTT.softmax(-1).type_as(v_BHTK) @ v_BHTK
        mixed_BTD: Tensor = self.output(mixed_BHTK.transpose(1, 2).flatten(2))
        return mixed_BTD

    def _mask(self, length: int, device: torch.device) -> Tensor:
        """Whether the token of a row attends to that of a column."""
        mask_TT = torch.ones(length, length, dtype=torch.bool, device=device).tril()
        if self.window is not None:
            mask_TT = mask_TT.triu(1 - self.window)
        return mask_TT

    def _heads(self, x_BTF: Tensor) -> Tensor:
        return x_BTF.view(*x_BTF.shape[:2], -1, self.head_size).transpose(1, 2)


class LocalFilter(nn.Module):
    """Mixes each token with the two before it, by two causal convolutions (Yuan 2.0, arXiv 2311.15786)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(2 * width, width // 2, bias=False)
        self.first_bias = Bias(width // 2)
        self.second = nn.Linear(width, width, bias=False)
        self.second_bias = Bias(width)
        self.norm = nn.RMSNorm(width, eps=1e-6)

    def forward(self, x_BTD: Tensor) -> Tensor:
        h_BTE = self.first_bias(self.first(torch.cat((_previous(x_BTD), x_BTD), -1)))
        pairs_BTD = torch.stack((_previous(h_BTE), h_BTE), -1).flatten(2)  # feature by feature
        filtered_BTD: Tensor = self.norm(x_BTD + self.second_bias(self.second(pairs_BTD)))
        return filtered_BTD


class Bias(nn.Module):
    """Adds a number to each feature."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight


def _previous(x_BTD: Tensor) -> Tensor:
    """The token before each; zeros before the first."""
    return F.pad(x_BTD, (0, 0, 1, 0))[:, :-1]


def _rotate(x_BHTK: Tensor, rotation: Rotation) -> Tensor:
    """Rotate the first R features of each head in pairs: feature i with feature i + R/2."""
    cosines_TR, sines_TR = rotation
    features = cosines_TR.shape[-1]
    first, second = x_BHTK[..., :features].float().chunk(2, -1)
    crossed = torch.cat((-second, first), -1)
    rotated_BHTR = x_BHTK[..., :features].float() * cosines_TR + crossed * sines_TR
    return torch.cat((rotated_BHTR.type_as(x_BHTK), x_BHTK[..., features:]), -1)


class LayerNorm(nn.LayerNorm):
    """LayerNorm whose bias, if any, is a layer."""

    def __init__(self, width: int, epsilon: float, biased: bool) -> None:
        super().__init__(width, eps=epsilon, bias=False)
        self.shift = _bias(width, biased)

    def forward(self, x: Tensor) -> Tensor:
        shifted: Tensor = self.shift(super().forward(x))
        return shifted


def _norm(config: dict[str, Any]) -> nn.Module:
    kind = config.get("norm", "rms")
    if kind == "rms":
        return nn.RMSNorm(config["width"], eps=config["norm_epsilon"])
    return LayerNorm(config["width"], config["norm_epsilon"], kind == "layer")


def _bias(features: int, is_there: bool) -> nn.Module:
    return Bias(features) if is_there else nn.Identity()


class FeedForward(nn.Module):
    """SwiGLU, GEGLU, or GELU without a gate. The block adds the last bias."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        hidden, biased = config["feed_forward"], config.get("biases") == "all"
        self.activation = config.get("activation", "swiglu")
        if self.activation != "gelu":
            self.gate, self.gate_bias = nn.Linear(config["width"], hidden, bias=False), _bias(hidden, biased)
        self.up, self.up_bias = nn.Linear(config["width"], hidden, bias=False), _bias(hidden, biased)
        self.down = nn.Linear(hidden, config["width"], bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        up_BTF = self.up_bias(self.up(x_BTD))
        if self.activation == "gelu":
            hidden_BTF = F.gelu(up_BTF, approximate="tanh")
        else:
            gate_BTF = self.gate_bias(self.gate(x_BTD))
            is_silu = self.activation == "swiglu"
            hidden_BTF = (F.silu(gate_BTF) if is_silu else F.gelu(gate_BTF, approximate="tanh")) * up_BTF
        out_BTD: Tensor = self.down(hidden_BTF)
        return out_BTD


class Block(nn.Module):
    """x + attention(norm(x)), then the same with the feed-forward network."""

    def __init__(self, config: dict[str, Any], layer: int) -> None:
        super().__init__()
        self.attention_norm = _norm(config)
        self.attention = Attention(config, layer)
        self.feed_forward_norm = _norm(config)
        self.feed_forward = FeedForward(config)
        self.attention_post_norm, self.feed_forward_post_norm = (
            _norm(config) if config.get("post_norms") else nn.Identity() for _ in range(2)
        )
        biased = config.get("biases") == "all"
        self.multiplier = config.get("residual_multiplier", 1.0)
        self.attention_bias, self.feed_forward_bias = (_bias(config["width"], biased) for _ in range(2))

    def forward(self, x_BTD: Tensor, rotation: Rotation) -> Tensor:
        attended_BTD = self.attention_bias(self.attention(self.attention_norm(x_BTD), rotation))
        x_BTD = x_BTD + self.attention_post_norm(attended_BTD) * self.multiplier
        forwarded_BTD = self.feed_forward_bias(self.feed_forward(self.feed_forward_norm(x_BTD)))
        out_BTD: Tensor = x_BTD + self.feed_forward_post_norm(forwarded_BTD) * self.multiplier
        return out_BTD


class ParallelBlock(nn.Module):
    """x + attention(norm(x)) + feed_forward(norm(x))."""

    def __init__(self, config: dict[str, Any], layer: int) -> None:
        super().__init__()
        self.norm = _norm(config)
        self.attention = Attention(config, layer)
        self.feed_forward = FeedForward(config)
        self.multiplier = config.get("residual_multiplier", 1.0)
        self.bias = _bias(config["width"], config.get("biases") == "all")

    def forward(self, x_BTD: Tensor, rotation: Rotation) -> Tensor:
        normed_BTD = self.norm(x_BTD)
        added_BTD = self.attention(normed_BTD, rotation) + self.feed_forward(normed_BTD)
        out_BTD: Tensor = x_BTD + self.bias(added_BTD) * self.multiplier
        return out_BTD


def _check(config: dict[str, Any]) -> None:
    """Raises:
    ValueError: a setting, or its value, is not computed here.
    """
    remedy = "use the model.py that was exported with this config.json"
    unknown = sorted(set(config) - _FIELDS - set(_CHOICES))
    if unknown:
        raise ValueError(f"config.json: this file does not know {', '.join(unknown)}: {remedy}")
    scaling = config.get("rope_scaling") or {}
    given = config | {f"rope_scaling.{name}": value for name, value in scaling.items()}
    for name, known in _CHOICES.items():
        value = given.get(name, known[0])
        if value not in known:
            only = f"this file computes only {', '.join(known)}"
            raise ValueError(f"config.json: model.{name} is {value}, but {only}: {remedy}")


class Model(nn.Module):
    """Token ids (B, T) → logits (B, T, V)."""

    def __init__(self, config: dict[str, Any], vocabulary: int, positions: int) -> None:
        super().__init__()
        _check(config)
        self.positions, self.config = positions, config
        self.multiplier = config.get("embedding_multiplier", 1.0)
        kind = ParallelBlock if config.get("block") == "parallel" else Block
        self.embedding = nn.Embedding(vocabulary, config["width"])
        is_learned = config.get("positions") == "learned"
        self.position_embedding = nn.Embedding(positions, config["width"]) if is_learned else None
        self.layers = nn.ModuleDict({str(layer): kind(config, layer) for layer in range(config["layers"])})
        self.norm = _norm(config)
        self.head = nn.Linear(config["width"], vocabulary, bias=False)
        if config["tied_embeddings"]:
            self.head.weight = self.embedding.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        places_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTD = self.embedding(tokens_BT) * self.multiplier
        if self.position_embedding is not None:
            x_BTD = x_BTD + self.position_embedding(places_T)
        rotation = _rotation(self.config, places_T)
        for block in self.layers.values():
            x_BTD = block(x_BTD, rotation)
        return _softcapped(self.head(self.norm(x_BTD)), self.config.get("final_logit_softcapping"))

    @torch.inference_mode()
    def generate(self, ids: list[int], new_tokens: int, temperature: float = 0.0) -> list[int]:
        """``ids`` and ``new_tokens`` more; temperature 0 always takes the most likely one."""
        ids = list(ids)
        for _ in range(new_tokens):
            logits_V = self(torch.tensor([ids[-self.positions :]]))[0, -1].float()
            drawn = (
                torch.multinomial((logits_V / temperature).softmax(-1), 1)
                if temperature
                else logits_V.argmax()
            )
            ids.append(int(drawn))
        return ids


def _rotation(config: dict[str, Any], places_T: Tensor) -> Rotation:
    """The tables of rotary positions. A scaling lowers the frequencies of long wavelengths."""
    features = int(config["head_size"] * config.get("partial_rotary_factor", 1.0))
    even = torch.arange(0, features, 2, dtype=torch.float32, device=places_T.device)
    frequencies, factor = 1.0 / config["rope_theta"] ** (even / features), 1.0
    scaling = config.get("rope_scaling")
    if scaling is not None:
        wanted = {name: value for name, value in scaling.items() if value is not None}
        scaled = _llama3 if wanted["rope_type"] == "llama3" else _yarn
        frequencies, factor = scaled(frequencies, config["rope_theta"], wanted)
    angles_TR = torch.outer(places_T.float(), frequencies).repeat(1, 2)
    return angles_TR.cos() * factor, angles_TR.sin() * factor


def _llama3(frequencies: Tensor, theta: float, scaling: dict[str, Any]) -> tuple[Tensor, float]:
    """Frequencies and the factor of cosines and sines (Llama 3.1)."""
    length, low = scaling["original_max_position_embeddings"], scaling.get("low_freq_factor", 1.0)
    smooth = length * frequencies / (2 * math.pi) - low
    kept = (smooth / (scaling.get("high_freq_factor", 4.0) - low)).clamp(0, 1)
    return (1 - kept) * frequencies / scaling["factor"] + kept * frequencies, 1.0


def _yarn(frequencies: Tensor, theta: float, scaling: dict[str, Any]) -> tuple[Tensor, float]:
    """Frequencies and the factor of cosines and sines (YaRN, arXiv 2309.00071)."""
    features, length = 2 * len(frequencies), scaling["original_max_position_embeddings"]
    first, last = (
        features * math.log(length / (scaling.get(name, default) * 2 * math.pi)) / (2 * math.log(theta))
        for name, default in (("beta_fast", 32.0), ("beta_slow", 1.0))
    )
    first, last = max(math.floor(first), 0), min(math.ceil(last), features - 1)
    pairs = torch.arange(len(frequencies), dtype=torch.float32, device=frequencies.device)
    divided = ((pairs - first) / (last - first or 0.001)).clamp(0, 1)
    factor = scaling.get("attention_factor", 0.1 * math.log(scaling["factor"]) + 1.0)
    return frequencies / scaling["factor"] * divided + frequencies * (1 - divided), factor


def load(folder: str | Path) -> Model:
    """The model of an export, in the number format of its weights."""
    config = json.loads(Path(folder, "config.json").read_text())
    with torch.device("meta"):
        model = Model(config["model"], config["vocab_size"], config["max_position_embeddings"])
    tied = {"head.weight"} if config["model"]["tied_embeddings"] else set()
    weights: dict[str, Tensor] = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        weights |= load_file(path)
    wanted = set(model.state_dict()) - tied
    if wanted != set(weights):
        raise ValueError(f"the weights differ from config.json: {sorted(wanted ^ set(weights))[0]}")
    model.load_state_dict(weights, strict=False, assign=True)
    if tied:
        model.head.weight = model.embedding.weight
    return model.eval()


def main() -> None:
    """Continue a text."""
    from tokenizers import Tokenizer

    parser = argparse.ArgumentParser(description="Continue a text.")
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--temperature", type=float, default=0.0)
    given = parser.parse_args()
    folder = Path(__file__).parent
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(given.prompt).ids
    print(tokenizer.decode(load(folder).generate(ids, given.tokens, given.temperature)))


if __name__ == "__main__":
    main()
