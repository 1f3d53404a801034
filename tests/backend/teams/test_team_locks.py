"""When a request locks the row of its team."""

import pytest
from sqlalchemy import delete, select
from starlette.requests import Request

from tests.backend.conftest import Site
from trainwright_backend.api.dependencies import write_session
from trainwright_backend.auth.audit import TEAM_KEY
from trainwright_backend.auth.tables import Team
from trainwright_backend.core.errors import NotFound
from trainwright_backend.teams.tables import Webhook
from trainwright_backend.teams.team_locks import lock_to_delete


@pytest.mark.both_databases
def test_a_request_locks_nothing_before_its_function_runs(site: Site) -> None:
    database = site.app.state.database
    with database.read() as session:
        team_id = session.scalars(select(Team.id)).one()
    # If the request had begun its transaction, the other one would wait for it, and fail on SQLite after 5 s.
    request = Request({"type": "http", "app": site.app, TEAM_KEY: team_id})
    with (
        pytest.raises(NotFound, match="This team was deleted"),
        write_session.open(request) as session,
    ):
        with database.write() as other:
            lock_to_delete(other, team_id)
            other.execute(delete(Team).where(Team.id == team_id))
        session.scalars(select(Webhook)).all()
