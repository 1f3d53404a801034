"""What the client asks before and beside runs: layouts, estimates, saved recipes, usage; a part of `client.TeamClient`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.connection import Connection
from trainwright.contracts.api.plans import RunPlan
from trainwright.contracts.api.runs import Run, Verdicts
from trainwright.contracts.api.usage import RunEstimate, Usage
from trainwright.contracts.api.verbs import NewRecipe, RunLayout, SavedRecipe
from trainwright.contracts.run_spec import RunSpec


class PlanCalls:
    """Questions about specs that nobody has submitted, and the choices that a run's next attempt begins with."""

    _client: Connection
    _path: str

    def validate(self, spec: Mapping[str, Any] | RunSpec) -> Verdicts:
        """What the server thinks of a spec, without submitting it."""
        return self._client.post(f"{self._path}/runs/validate", Verdicts, json=as_json(spec))

    def plan_run(self, spec: Mapping[str, Any] | RunSpec) -> RunPlan:
        """What the layout of a run comes to: place of each rank, stages, memory, and the order of the pipeline's work."""
        return self._client.post(f"{self._path}/runs/plan", RunPlan, json=as_json(spec))

    def estimate(self, spec: Mapping[str, Any] | RunSpec, begin_step: int = 0) -> RunEstimate:
        """What a run would come to: arithmetic, memory, bytes, and time where the same was measured before.

        Args:
            spec: of the run; of a fork the whole one too.
            begin_step: step of the checkpoint that a fork would go on from.
        """
        path, asked = f"{self._path}/runs/estimate", {"begin_step": begin_step}
        return self._client.post(path, RunEstimate, json=as_json(spec), params=asked)

    def change_layout(self, run_id: str, layout: RunLayout) -> Run:
        """Cut the run's next attempt over its ranks in another way. An attempt that lives goes on as it began."""
        asked = layout.model_dump(mode="json", exclude_none=True)
        return self._client.put(f"{self._path}/runs/{run_id}/layout", Run, json=asked)

    def recipes(self) -> list[SavedRecipe]:
        """The team's saved recipes by name."""
        return self._client.get_list(f"{self._path}/recipes", SavedRecipe)

    def save_recipe(self, name: str, spec: Mapping[str, Any]) -> SavedRecipe:
        """Keep fields of a spec under a name; one of the same name is replaced."""
        new = NewRecipe(name=name, spec=dict(spec)).model_dump(mode="json")
        return self._client.post(f"{self._path}/recipes", SavedRecipe, json=new)

    def delete_recipe(self, recipe_id: str) -> None:
        self._client.delete(f"{self._path}/recipes/{recipe_id}")

    def usage(self, days: int = 30) -> Usage:
        """Quota, storage, and slot-hours by day and by run."""
        return self._client.get(f"{self._path}/usage", Usage, {"days": days})


def as_json(spec: Mapping[str, Any] | RunSpec) -> Any:
    """A spec as it is sent."""
    return spec.model_dump(mode="json") if isinstance(spec, RunSpec) else dict(spec)
