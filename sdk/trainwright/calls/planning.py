# Generated from async_calls/planning.py by infra/sync_client.py. Change that file.
"""Planning of runs: validation, layouts and estimates of specs, recipes, and usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.calls.team import TeamCalls
from trainwright.contracts.api.actions import NewRecipe, Recipe, RunLayout
from trainwright.contracts.api.envelopes import SpecInfo
from trainwright.contracts.api.plans import GpuModel, RunPlan, WhatIf
from trainwright.contracts.api.runs import Run, SpecCheck
from trainwright.contracts.api.usage import DailyMemberUsage, DailyRunUsage, RunEstimate, Usage
from trainwright.contracts.run_spec import RunSpec


class PlanningCalls(TeamCalls):
    """Calls about specs before they are submitted, and about the layout of a run's next attempt."""

    def validate(self, spec: Mapping[str, Any] | RunSpec, checkpoint_id: str | None = None) -> SpecCheck:
        """Validate a spec without submitting it.

        Args:
            spec: the complete spec, also for a fork.
            checkpoint_id: the checkpoint that a fork would continue from.
        """
        asked = {} if checkpoint_id is None else {"checkpoint": checkpoint_id}
        return self._client.post_idempotent(
            f"{self._path}/runs/validate", SpecCheck, json=as_json(spec), params=asked
        )

    def plan_run(self, spec: Mapping[str, Any] | RunSpec) -> RunPlan:
        """The plan of a run's layout: position of each rank, stages, memory, and the pipeline's timeline."""
        return self._client.post_idempotent(f"{self._path}/runs/plan", RunPlan, json=as_json(spec))

    def estimate(self, spec: Mapping[str, Any] | RunSpec, begin_step: int = 0) -> RunEstimate:
        """Estimate the compute, memory and storage of a run, and its time if a similar run was measured.

        Args:
            spec: the complete spec, also for a fork.
            begin_step: step of the checkpoint that a fork would continue from.
        """
        path, asked = f"{self._path}/runs/estimate", {"begin_step": begin_step}
        return self._client.post_idempotent(path, RunEstimate, json=as_json(spec), params=asked)

    def gpus(self) -> list[GpuModel]:
        """The GPUs that `what_if` can plan for."""
        info = self._client.get("/spec", SpecInfo)
        return info.gpus

    def what_if(self, spec: Mapping[str, Any] | RunSpec, gpu: str, begin_step: int = 0) -> WhatIf:
        """Plan a run on `resources.nodes` × `resources.slots_per_node` GPUs of any known kind, joined or not.

        Args:
            spec: the complete spec.
            gpu: the GPU's name, such as `NVIDIA H100 80GB HBM3`; `GET /spec` lists the names.
            begin_step: step of the checkpoint that a fork would continue from.
        """
        path, asked = f"{self._path}/runs/what-if", {"gpu": gpu, "begin_step": begin_step}
        return self._client.post_idempotent(path, WhatIf, json=as_json(spec), params=asked)

    def change_layout(self, run_id: str, layout: RunLayout) -> Run:
        """Change the layout of a run for its next attempt. A current attempt is not affected."""
        asked = layout.model_dump(mode="json", exclude_none=True)
        return self._client.put(f"{self._path}/runs/{run_id}/layout", Run, json=asked)

    def recipes(self) -> list[Recipe]:
        """The team's recipes by name."""
        return self._client.get_pages(f"{self._path}/recipes", Recipe)

    def save_recipe(self, name: str, spec: Mapping[str, Any]) -> Recipe:
        """Save fields of a spec as a recipe. A recipe of the same name is replaced."""
        new = NewRecipe(name=name, spec=dict(spec)).model_dump(mode="json")
        return self._client.post(f"{self._path}/recipes", Recipe, json=new)

    def delete_recipe(self, recipe_id: str) -> None:
        self._client.delete(f"{self._path}/recipes/{recipe_id}")

    def usage(self, days: int = 30) -> Usage:
        """Quota, storage, and slot-hours by day, by person and by run."""
        return self._client.get(f"{self._path}/usage", Usage, {"days": days})

    def member_usage(self, days: int = 30) -> list[DailyMemberUsage]:
        """Slot-hours by day and by the person who submitted the runs."""
        return self._client.get_list(f"{self._path}/usage/members", DailyMemberUsage, {"days": days})

    def run_usage(self, days: int = 30) -> list[DailyRunUsage]:
        """Slot-hours by day, run, person and device: the rows that the other figures add up."""
        return self._client.get_list(f"{self._path}/usage/runs", DailyRunUsage, {"days": days})


def as_json(spec: Mapping[str, Any] | RunSpec) -> Any:
    """A spec as JSON."""
    return spec.model_dump(mode="json") if isinstance(spec, RunSpec) else dict(spec)
