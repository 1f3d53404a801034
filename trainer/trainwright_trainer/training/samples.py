"""Texts that the model writes during training: it continues the run's prompts, so that people can read what it learns.

All ranks run the same forward passes as in training, in any layout, without gradients and compilation. One rank draws
the next tokens from the logits and shares them with the others by an all-reduce. The first pass reads the prompts, padded
to one length; padding comes after the last token, where causal attention does not see it. Each later pass reads the newest
token of each text, and finds the keys and values of earlier tokens in a cache. A text that is longer than a sequence is
read from its last tokens for each new one, because all its positions change.

The draws are functions of the run's seed, the step and the prompt (``runtime.seeds``), and each prompt has its own
generator. So samples do not change the training.

    B prompt   T position of a pass   V vocabulary
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from trainwright.contracts.events import MAX_SAMPLE_LENGTH, Sample
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.token_shards import TOKENIZER_NAME
from trainwright.contracts.training_spec import ValidationSpec
from trainwright.prepare.tokenizer import encode_prompt, end_of_text_id
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.model.key_value_cache import KeyValueCache, next_pass
from trainwright_trainer.model.next_token import draw_token
from trainwright_trainer.runtime.seeds import sample_seed
from trainwright_trainer.training.engine import Engine

_FP8_UNIT = 16
"""FP8 matmuls on GPUs need tokens in multiples of this."""


def sample_writer(spec: RunSpec, data: Path, mesh: Mesh) -> SampleWriter | None:
    """The writer of ``spec``'s samples; None if it has no prompts.

    Args:
        data: folder with the tokenizer.
    """
    if not spec.validation.prompts:
        return None
    return SampleWriter(spec, Tokenizer.from_file(str(data / TOKENIZER_NAME)), mesh)


class SampleWriter:
    """Continues the prompts of a run."""

    def __init__(self, spec: RunSpec, tokenizer: Tokenizer, mesh: Mesh) -> None:
        self._settings: ValidationSpec = spec.validation
        self._seed = spec.seed
        self._tokenizer = tokenizer
        self._end = end_of_text_id(tokenizer)
        self._mesh = mesh
        self._prompts = [encode_prompt(tokenizer, prompt) for prompt in self._settings.prompts]
        self._document_end = self._end if spec.batch.document_mask else None
        self._positions = spec.batch.sequence_tokens
        # Tensor ranks and their chunks get equal parts of each pass.
        self._unit = spec.degrees.tensor * spec.parallelism.tensor_chunks
        if spec.precision.kind is PrecisionKind.FP8:
            self._unit *= _FP8_UNIT
        self._together = spec.batch.micro_sequences
        """Prompts in one forward pass: it needs no more memory than a micro batch."""

    def write(self, engine: Engine, step: int) -> list[Sample]:
        """Continue each prompt with the current weights. All ranks call this and get the same texts."""
        written: list[Sample] = []
        # The shapes differ from training, and only a few passes use them.
        with torch.compiler.set_stance("force_eager"):
            for first in range(0, len(self._prompts), self._together):
                prompts = range(first, min(first + self._together, len(self._prompts)))
                continuations = self._continue(engine, step, prompts)
                for prompt, ids in zip(prompts, continuations, strict=True):
                    written.append(Sample(prompt=self._settings.prompts[prompt], text=self._text(ids)))
        return written

    def _continue(self, engine: Engine, step: int, prompts: range) -> list[list[int]]:
        """The tokens that follow each prompt, up to the end of the text."""
        generators = [
            torch.Generator().manual_seed(sample_seed(self._seed, step, prompt)) for prompt in prompts
        ]
        rows = [list(self._prompts[prompt]) for prompt in prompts]
        ended = [False] * len(rows)
        cache: KeyValueCache | None = None
        for _ in range(self._settings.sample_tokens):
            cache, new = next_pass(rows, cache, self._positions, self._document_end)
            drawn = self._next_tokens(engine, new, cache, generators)
            for row, token in enumerate(drawn):
                ended[row] = ended[row] or token == self._end
                if not ended[row]:
                    rows[row].append(token)
            if all(ended):
                break
        return [ids[len(self._prompts[prompt]) :] for prompt, ids in zip(prompts, rows, strict=True)]

    def _next_tokens(
        self,
        engine: Engine,
        new: list[list[int]],
        cache: KeyValueCache,
        generators: list[torch.Generator],
    ) -> list[int]:
        """One token per row, the same on all ranks.

        Args:
            new: the tokens of each row that ``cache`` lacks.
        """
        device = self._mesh.device
        length = min(self._positions, -(-max(map(len, new)) // self._unit) * self._unit)
        padded = [ids + [self._end] * (length - len(ids)) for ids in new]
        at_B = torch.tensor([len(ids) - 1 for ids in new], device=device)
        self._mesh.progress.count_pass()
        logits_BV = engine.next_logits(torch.tensor(padded, device=device), at_B, cache)
        ids_B = torch.zeros(len(new), dtype=torch.int64, device=device)
        if logits_BV is not None and self._mesh.data.rank == 0 and self._mesh.tensor.rank == 0:
            ids_B.copy_(self._draw(logits_BV.float().cpu(), generators))
        drawn: list[int] = self._mesh.world.all_reduce(ids_B).tolist()
        return drawn

    def _draw(self, logits_BV: Tensor, generators: list[torch.Generator]) -> Tensor:
        """Draw a token per prompt. Diverging weights give logits that are not finite; these draw the end of the text."""
        return torch.tensor(
            [
                draw_token(logits_V, self._settings.temperature, generator)
                if logits_V.isfinite().all()
                else self._end
                for logits_V, generator in zip(logits_BV, generators, strict=True)
            ]
        )

    def _text(self, ids: list[int]) -> str:
        """The decoded text, without null characters, which databases cannot store."""
        text = self._tokenizer.decode(ids).replace("\0", "\ufffd")
        return text if len(text) <= MAX_SAMPLE_LENGTH else f"{text[: MAX_SAMPLE_LENGTH - 1]}…"
