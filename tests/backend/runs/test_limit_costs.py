"""What limits cost: a round of the control loop measures all teams at once, and writes only what is due."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import delete, insert, inspect

from tests.backend.runs.test_limits import limit, limit_me, used_for
from tests.backend.scripted_agent import Scene
from tests.backend.sent_statements import sent_statements
from trainwright_backend.control.limit_enforcement import enforce_limits
from trainwright_backend.core.ids import new_id, parse_id
from trainwright_backend.runs.tables import Run

pytestmark = pytest.mark.usefixtures("in_the_middle_of_a_month")

WRITES = ("INSERT", "UPDATE", "DELETE", "BEGIN IMMEDIATE")


@contextmanager
def copies(scene: Scene, run_id: str, count: int) -> Iterator[None]:
    """Waiting runs that are equal to this one. They have no events, which every run has at the end of a test."""
    ids = [new_id() for _ in range(count)]
    with scene.database.write() as session:
        row = session.get_one(Run, parse_id("run", run_id))
        values: dict[str, Any] = {
            column.key: getattr(row, column.key) for column in inspect(Run).mapper.column_attrs
        }
        session.execute(insert(Run), [values | {"id": copy_id} for copy_id in ids])
    yield
    with scene.database.write() as session:
        session.execute(delete(Run).where(Run.id.in_(ids)))


def writes(statements: list[str]) -> list[str]:
    return [
        item for item in statements if item.startswith(WRITES) or "FOR UPDATE" in item or "FOR NO KEY" in item
    ]


def test_a_round_sends_as_many_statements_for_200_waiting_runs_as_for_2(scene: Scene) -> None:
    """With room for none of them, and with room for all and no free node."""
    limit(scene, storage_bytes=0, cpu_hours_per_month=100)
    limit_me(scene, cpu_hours_per_month=50)
    run_id = scene.submit()
    scene.agent.heartbeat(busy_slots={"cpu": [0, 1]})

    def statements() -> list[int]:
        counts = []
        for storage_bytes in (0, 2**50):
            limit(scene, storage_bytes=storage_bytes, cpu_hours_per_month=100)
            scene.control.sweep()  # stores what the runs wait for
            with sent_statements(scene.database.engine) as sent:
                scene.control.sweep()
            counts.append(len(sent))
        return counts

    with copies(scene, run_id, 1):
        few = statements()
    with copies(scene, run_id, 199):
        many = statements()
    print(f"statements of a round: {few} with 2 waiting runs, {many} with 200")
    assert few == many


def test_a_round_without_due_notices_or_pauses_writes_nothing(scene: Scene) -> None:
    limit(scene, storage_bytes=2**50, cpu_hours_per_month=100)
    limit_me(scene, cpu_hours_per_month=50)
    works = [scene.running() for _ in range(2)]
    with sent_statements(scene.database.engine) as sent:
        enforce_limits(scene.database)
    print(f"statements of enforcing limits on 2 runs: {len(sent)}")
    assert sent and writes(sent) == []
    used_for(scene, works[0].run_id, 42)
    with sent_statements(scene.database.engine) as sent:
        enforce_limits(scene.database)
    assert writes(sent), "the notice of 80 % is due"
    with sent_statements(scene.database.engine) as sent:
        enforce_limits(scene.database)
    assert writes(sent) == []


def test_the_limits_of_more_members_are_read_by_as_many_statements(scene: Scene) -> None:
    path = f"{scene.site.path}/limits/members"
    used_for(scene, scene.running().run_id, 1)

    def statements() -> int:
        with sent_statements(scene.database.engine) as sent:
            shown = scene.site.admin.get(path).json()
        assert {item["name"]: item["hours"][1]["used"] >= 1 for item in shown}["Ada"]
        return len(sent)

    few = statements()
    for number in range(3):
        scene.site.member("editor", email=f"editor-{number}@acme.example")
    assert statements() == few
