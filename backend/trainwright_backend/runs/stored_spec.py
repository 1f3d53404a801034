"""The specs of stored runs. Parsing one takes as long as a short request, and the specs of many runs differ only in name and seed, so
parsed specs are cached."""

import json
from functools import lru_cache

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.runs.tables import Run

_NAMELESS = {"name": "run", "seed": 0}


def stored_spec(run: Run) -> RunSpec:
    """The run's spec.

    Raises:
        ValidationError: this version cannot read it.
    """
    shared = _parse(spec_json(run))
    own = {name: run.spec.get(name, default) for name, default in _NAMELESS.items()}
    return shared.model_copy(update=own)


def nameless_spec(run: Run) -> RunSpec | None:
    """The run's spec with a fixed name and seed; None if this version cannot read it."""
    return parse_spec(spec_json(run))


def spec_json(run: Run) -> bytes:
    """The run's spec with a fixed name and seed: few texts for many runs, whose meaning can be cached."""
    nameless = {**run.spec, **_NAMELESS}
    try:
        return to_json(nameless)
    except PydanticSerializationError:  # half a surrogate pair, which `parse_spec` refuses
        return json.dumps(nameless).encode()


def parse_spec(spec: bytes) -> RunSpec | None:
    """A spec in JSON; None if this version cannot read it: an older one stored it, whose rules differed."""
    try:
        return _parse(spec)
    except ValidationError:
        return None


@lru_cache(maxsize=1024)
def _parse(spec: bytes) -> RunSpec:
    return RunSpec.model_validate_json(spec)
