"""The small preset of each family trains through the platform: submitted by name, trained, exported, and read again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.live import PATIENT_TIMERS, Live, finished, live_platform, series, small_spec, write_letters
from trainwright.contracts.presets import PRESET_FAMILIES, PRESETS, PUBLISHED
from trainwright.contracts.run_state import RunState
from trainwright_trainer.checkpoint.export import load_export

pytestmark = pytest.mark.slow(target="layouts")

SMALL = ["nano", *(name for name in PUBLISHED if name.endswith("-tiny"))]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_platform(tmp_path_factory.mktemp("platform") / "data", PATIENT_TIMERS) as running:
        yield running


@pytest.fixture(scope="module")
def run_ids(live: Live, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A run of each preset, all in the queue at once."""
    file = write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")
    dataset = live.team.upload("letters", [file])
    resources = {"device": "cpu", "slots_per_node": 1}
    models = {name: PRESETS[name].model_dump(mode="json", exclude_unset=True) for name in SMALL}
    return {
        name: live.team.submit(small_spec(dataset, name=name, model=model, resources=resources)).id
        for name, model in models.items()
    }


def test_each_family_has_a_small_preset() -> None:
    assert {PRESET_FAMILIES[name] for name in SMALL} == set(PRESET_FAMILIES.values())


@pytest.mark.parametrize("name", SMALL)
def test_a_small_preset_trains_and_its_export_can_be_read(
    name: str, live: Live, run_ids: dict[str, str], tmp_path: Path
) -> None:
    run = finished(live.team, run_ids[name], seconds=600)
    assert run.state is RunState.SUCCEEDED, run.sentence
    losses = series(live.team, run.id, "loss")
    assert losses[30] < losses[1]
    model, tokenizer = load_export(live.team.download(run.id, tmp_path / "export"))
    ids = torch.tensor([tokenizer.encode("Letter 3: the ship").ids])
    with torch.inference_mode():
        logits = model(ids)
    assert logits.shape[:2] == ids.shape and logits.isfinite().all()
