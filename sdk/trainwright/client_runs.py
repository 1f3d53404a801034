"""What the client does with a run that exists, as one half of `client.TeamClient`."""

from __future__ import annotations

from trainwright.connection import Connection
from trainwright.contracts.api.runs import Run


class RunCalls:
    """Verbs of runs. Each is asked for once: a call whose answer was lost is not repeated."""

    _client: Connection
    _path: str

    def cancel(self, run_id: str) -> Run:
        return self._do(run_id, "cancel")

    def pause(self, run_id: str) -> Run:
        """Ask a run to save its state and free its slots. It is paused when its node has let go of it."""
        return self._do(run_id, "pause")

    def resume(self, run_id: str) -> Run:
        """Queue a paused run again; over the team's quota it is refused and stays paused."""
        return self._do(run_id, "resume")

    def _do(self, run_id: str, verb: str) -> Run:
        return self._client.post(f"{self._path}/runs/{run_id}/{verb}", Run)
