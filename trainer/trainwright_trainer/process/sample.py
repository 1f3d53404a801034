"""Text from an export, one token at a time: enough to see what a model has learned."""

from __future__ import annotations

from pathlib import Path

import torch

from trainwright.prepare.tokenizer import encode_prompt, end_of_text_id
from trainwright_trainer.checkpoint.export import load_export
from trainwright_trainer.model.key_value_cache import KeyValueCache, next_pass
from trainwright_trainer.model.next_token import draw_token


def sample(folder: Path, prompt: str, tokens: int, temperature: float, seed: int) -> str:
    """Continue ``prompt`` by up to ``tokens`` tokens; temperature 0 always takes the most likely one."""
    model, tokenizer = load_export(folder)
    end = end_of_text_id(tokenizer)
    generator = torch.Generator().manual_seed(seed)
    ids = encode_prompt(tokenizer, prompt)
    prompt_length = len(ids)
    cache: KeyValueCache | None = None
    with torch.inference_mode():
        while len(ids) < prompt_length + tokens:
            cache, (new,) = next_pass([ids], cache, model.positions, model.end_of_text)
            logits_V = model.logits(model.features(torch.tensor([new]), cache)[0, -1])
            ids.append(draw_token(logits_V, temperature, generator))
            if ids[-1] == end:
                break
    return str(tokenizer.decode(ids))
