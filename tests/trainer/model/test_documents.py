"""Masked documents: each is computed as if it were alone, with every attention option and in every layout."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer.jobs import TINY, write_job
from tests.trainer.model.option_trainings import FP8, FP32, LENGTH, build, learned
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import one_step, start
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.memory import document_bytes, rank_memory
from trainwright_trainer.checkpoint.snapshot import config_digest
from trainwright_trainer.data.loader import read_batches
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.model import localized_filtering, transformer
from trainwright_trainer.model.documents import document_starts
from trainwright_trainer.model.flex_attention import FlexMasks
from trainwright_trainer.model.loss import next_token_loss
from trainwright_trainer.model.masks import DenseMasks, Visible

END = 0
SPEC = ModelSpec(layers=2, width=32, heads=4, kv_heads=2)
OPTIONS: dict[str, dict[str, object]] = {
    "full": {},
    "windows": {"sliding_window": 3, "sliding_window_pattern": 2},
    "parallel block": {"block": "parallel"},
    "localized filtering": {"attention": "localized_filtering", "sliding_window": 4},
    "learned positions": {"positions": "learned"},
    "soft caps": {"attn_logit_softcapping": 1.0, "final_logit_softcapping": 2.0},
    "rotary positions in some layers": {"no_rope_layer_interval": 2, "partial_rotary_factor": 0.5},
}
DOCUMENTS = [range(5), range(5, 6), range(6, 8), range(8, LENGTH)]
"""Positions of a sequence's documents: one of several tokens, one of an end token only, one of a token and an end,
and one that is truncated."""


def packed() -> Tensor:
    """(1, T + 1): a sequence of documents, and the target of its last token."""
    tokens = torch.randint(1, 64, (1, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    tokens[0, [document[-1] for document in DOCUMENTS[:-1]]] = END
    return tokens


def apart_from_alone(spec: ModelSpec) -> float:
    """Relative difference between the loss of packed and masked documents and that of the same documents alone."""
    model, alone, tokens = build(spec, END), build(spec), packed()
    with torch.no_grad():
        together = next_token_loss(model(tokens[:, :-1]), tokens[:, 1:])
        losses = [
            len(document)
            * next_token_loss(
                alone(tokens[:, document.start : document.stop]),
                tokens[:, document.start + 1 : document.stop + 1],
            )
            for document in DOCUMENTS
        ]
    return float((together / (torch.stack(losses).sum() / LENGTH) - 1).abs())


def with_option(option: str) -> ModelSpec:
    return SPEC.model_copy(update=OPTIONS[option])


def test_a_document_starts_after_the_end_of_the_previous_one() -> None:
    starts = [document.start for document in DOCUMENTS for _ in document]
    assert document_starts(packed()[:, :-1], END).tolist() == [starts]


@pytest.mark.parametrize("option", OPTIONS)
def test_packed_and_masked_documents_have_the_loss_of_the_same_documents_alone(option: str) -> None:
    assert apart_from_alone(with_option(option)) <= 1e-6


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("option", OPTIONS)
def test_documents_that_start_a_token_early_or_late_are_detected(
    option: str, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shifted(tokens_BT: Tensor, end_of_text: int) -> Tensor:
        starts_BT = document_starts(tokens_BT, end_of_text)
        limit_T = torch.arange(LENGTH)
        return torch.where(starts_BT > 0, starts_BT + shift, 0).minimum(limit_T)

    monkeypatch.setattr(transformer, "document_starts", shifted)
    assert apart_from_alone(with_option(option)) > 1e-5


def test_convolutions_across_documents_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = localized_filtering.previous
    monkeypatch.setattr(localized_filtering, "previous", lambda x_BTD, is_first_BT1=None: honest(x_BTD))
    assert apart_from_alone(with_option("localized filtering")) > 1e-5


@pytest.mark.parametrize("option", OPTIONS)
def test_a_change_affects_its_own_document_only(option: str) -> None:
    model, tokens = build(with_option(option), END), packed()[:, :-1]
    for changed in (1, 6):
        other = tokens.clone()
        other[0, changed] = tokens[0, changed] % 63 + 1
        (document,) = (document for document in DOCUMENTS if changed in document)
        with torch.no_grad():
            differs = (model.features(tokens) != model.features(other)).any(-1)[0]
        reached = differs.nonzero().flatten().tolist()
        assert reached[0] == changed and set(reached) <= set(document)


def test_a_sequence_of_one_document_equals_one_without_masks() -> None:
    tokens = torch.randint(1, 64, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert (build(SPEC, END)(tokens) - build(SPEC)(tokens)).abs().max() <= 1e-5


@pytest.mark.parametrize("window", [None, 3])
def test_flex_attention_computes_the_same(window: int | None) -> None:
    """On a CPU it has a forward pass only, which computes all scores; a GPU's kernel reads the same function."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, count, LENGTH, 8, generator=generator) for count in (4, 2, 2))
    starts = document_starts(torch.cat((packed()[:, :-1], packed()[:, 1:])), END)

    def attended(masks: DenseMasks | FlexMasks) -> Tensor:
        mask = masks.build(LENGTH, Visible(window, starts), torch.float32, torch.device("cpu"))
        with torch.no_grad():
            return masks.attend(q, k, v, mask)

    assert (attended(FlexMasks()) - attended(DenseMasks())).abs().max() <= 16 * 2.0**-22


MASKED = {"document_mask": True, "sequence_tokens": 64}
MODEL = {"layers": 4, "tied_embeddings": False, "initializer_std": 0.2}


@pytest.mark.slow(target="layouts")
def test_tensor_ranks_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Other layouts are cells of ``tests.parity``."""
    model = MODEL | {"layers": 2, "attention": "localized_filtering", "sliding_window": 12}
    one = learned(tmp_path, data, model, FP32, batch=MASKED)
    # About fifteen matmuls are computed in sequence in each of two layers, sums of at most 512 tokens in float32.
    bound = 30 * 512 * 2.0**-24
    assert learned(tmp_path, data, model, FP32, batch=MASKED, tensor=2) == pytest.approx(one, rel=bound)
    unmasked = learned(tmp_path / "unmasked", data, model, FP32, batch=MASKED | {"document_mask": False})
    assert unmasked != pytest.approx(one, rel=bound)


def learn_and_validate(mesh: Mesh, job_file: Path) -> list[float]:
    """Two steps, then the loss of some sequences of the validation split."""
    training = start(mesh, job_file)
    steps = [one_step(training, number) for number in (1, 2)]
    sequences = np.arange(4, dtype=np.uint64)
    loss = training.engine.mean_loss(read_batches(training.validation, sequences, 2))
    return [*(step.loss for step in steps), loss]


@pytest.mark.slow(target="layouts")
def test_stages_that_read_no_tokens_know_the_documents(tmp_path: Path, data: Path) -> None:
    """The two in the middle of four, in FP8. A norm is summed in another order, so steps are not clipped."""

    def of(ranks: int, document_mask: bool = True) -> list[list[float]]:
        folder = tmp_path / f"{ranks}-{document_mask}"
        sections = {
            "model": MODEL,
            "precision": FP8,
            "parallelism": {"pipeline": ranks},
            "batch": MASKED | {"document_mask": document_mask},
            "optimizer": {"clip_norm": None},
        }
        job_file = write_job(folder, data, ranks, **sections)
        return on_mesh(Degrees(pipeline=ranks), learn_and_validate, job_file)

    (one,) = of(1)
    assert of(4) == [one] * 4
    assert of(1, document_mask=False) != [one]


def test_the_digest_of_runs_without_masks_is_unchanged() -> None:
    plain, off, on = (
        RunSpec.model_validate(TINY | {"batch": batch})
        for batch in ({}, {"document_mask": False}, {"document_mask": True})
    )
    assert config_digest(plain) == config_digest(off) != config_digest(on)


@pytest.mark.parametrize("option", ["full", "windows", "rotary positions in some layers"])
def test_the_planner_counts_masks_and_tables(option: str) -> None:
    spec = RunSpec.model_validate(
        TINY
        | {"model": SPEC.model_dump() | OPTIONS[option], "batch": {"micro_sequences": 2} | MASKED}
        | {"resources": {"device": "cpu"}}
    )
    model = transformer.Transformer(spec.model, 257, 64, END)
    tables = model.tables(64, torch.float32, model.starts(torch.zeros(2, 64, dtype=torch.int64)))
    large = [each for each in tables if isinstance(each, Tensor) and each.dtype == torch.float32]
    assert document_bytes(spec) == sum(4 * each.numel() for each in large)
    counted, plain = (
        rank_memory(each, [2], 0).activations
        for each in (
            spec,
            spec.model_copy(update={"batch": spec.batch.model_copy(update={"document_mask": False})}),
        )
    )
    assert counted - plain == document_bytes(spec)
