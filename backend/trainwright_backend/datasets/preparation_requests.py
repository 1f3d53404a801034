"""Requesting and cancelling preparations. Submissions request preparations through `data_resolution`."""

from uuid import UUID

from trainwright.contracts.api.datasets import NewPreparation, Statistics
from trainwright.contracts.api.datasets import Preparation as PreparationOut
from trainwright.contracts.data_spec import DataSpec
from trainwright_backend.core.db import Write
from trainwright_backend.core.errors import Invalid
from trainwright_backend.datasets import preparations
from trainwright_backend.datasets.data_resolution import resolve_data
from trainwright_backend.datasets.preparations import show_preparation
from trainwright_backend.datasets.service import get_dataset, lock_dataset
from trainwright_backend.datasets.tables import Preparation


def request_preparation(session: Write, team_id: UUID, dataset: str, new: NewPreparation) -> PreparationOut:
    """The preparation of a version for a tokenizer and split: an existing one, a new one or a restarted one.

    Raises:
        NotFound: the team has no such dataset.
        Invalid: its version or the tokenizer cannot be used.
    """
    get_dataset(session, team_id, dataset)
    data = DataSpec(
        dataset=dataset,
        version=new.version,
        tokenizer=new.tokenizer,
        validation_fraction=new.validation_fraction,
    )
    try:
        _, preparation = resolve_data(session, team_id, data)
    except Invalid as error:
        problems = [
            problem.model_copy(update={"field": problem.field.removeprefix("data.")})
            for problem in error.errors
        ]
        raise Invalid(problems) from None
    return _to_response(session, preparation)


def cancel_preparation(session: Write, team_id: UUID, dataset: str, preparation: str) -> PreparationOut:
    """Cancel a preparation.

    Raises:
        NotFound: the dataset has no such preparation.
        Conflict: runs wait for it, or it has ended.
    """
    row = lock_dataset(session, team_id, dataset)
    return _to_response(session, preparations.cancel_preparation(session, team_id, row, preparation))


def _to_response(session: Write, preparation: Preparation) -> PreparationOut:
    session.flush()
    statistics = preparation.version.statistics
    rejected = None if statistics is None else Statistics.model_validate(statistics).rejected
    return show_preparation(preparation, rejected)
