"""The demo's account: a person who signs in by the demo's link may set a password, which revokes the demo's key."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from infra import demo
from tests.backend.conftest import PASSWORD
from tests.backend.uploads.faults import Server
from trainwright.client import Client
from trainwright.contracts.api.people import OneTimeLink
from trainwright.contracts.api.runs import Run
from trainwright.contracts.data_spec import DataSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright.transport.errors import ApiError
from trainwright_backend.core.db import Database
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams import one_time_links


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """The demo's platform has SQLite."""
    return sqlite_url


@pytest.fixture
def platform(settings: Settings) -> Iterator[Any]:
    """What the demo uses of its platform: an API, its folder, and the operator's links."""
    database = Database(settings.database_url)

    def command(_: str, purpose: str, *email: str) -> str:
        make: Any = {
            "first-owner": one_time_links.first_owner_link,
            "sign-in": one_time_links.sign_in_link,
        }[purpose]
        with database.write() as session:
            return f"{make(session, settings, *email).url}\n"

    with Server(settings) as server:
        folder = SimpleNamespace(path=settings.data_dir)
        yield SimpleNamespace(url=f"http://127.0.0.1:{server.port}", folder=folder, command=command)
    database.dispose()


def sign_in_and_set_a_password(platform: Any) -> Client:
    """The browser of a person who uses the link that the demo prints."""
    token = platform.command("link", "sign-in", demo.EMAIL).strip().rsplit("/", 1)[-1]
    person = Client(platform.url)
    person.use_link(OneTimeLink(token=token, password=PASSWORD))
    return person


def a_run(client: Client, platform: Any) -> Run:
    """A run that waits for a node."""
    file = platform.folder.path / "letters.txt"
    file.write_text("the quick brown fox")
    team = client.team(demo.TEAM)
    dataset = team.upload("letters", [file])
    return team.submit(RunSpec(name=f"{demo.RUN_NAME} 1", data=DataSpec(dataset=dataset.id)))


@pytest.mark.slow(target="databases")
def test_a_key_is_made_once_and_again_after_it_was_revoked(platform: Any) -> None:
    first = demo.sign_up(platform)
    file = platform.folder.path / "demo-key"
    key = file.read_text()
    assert [team.slug for team in first.me().teams] == [demo.TEAM]
    demo.sign_up(platform)
    assert file.read_text() == key

    sign_in_and_set_a_password(platform)
    with pytest.raises(ApiError) as revoked:
        first.me()
    assert revoked.value.status == 401
    assert demo.sign_up(platform).me().email == demo.EMAIL
    assert file.read_text() != key and file.stat().st_mode & 0o777 == 0o600


def test_a_run_is_followed_to_its_end_and_later_ones_cancelled_though_the_key_was_revoked(
    platform: Any,
) -> None:
    client = demo.sign_up(platform)
    run, left = a_run(client, platform), a_run(client, platform)
    person = sign_in_and_set_a_password(platform)
    person.team(demo.TEAM).cancel(run.id)

    team, ended = demo.follow(platform, client.team(demo.TEAM), run)
    assert (ended.id, ended.state) == (run.id, RunState.CANCELLED)
    demo.end_leftovers(team)
    assert person.team(demo.TEAM).run(left.id).state is RunState.CANCELLED


@pytest.mark.slow(target="databases")
def test_another_refusal_ends_the_demo(platform: Any) -> None:
    client = demo.sign_up(platform)
    run = a_run(client, platform)
    client.team(demo.TEAM).cancel(run.id)
    client.team(demo.TEAM).delete_run(run.id)
    with pytest.raises(ApiError) as unknown:
        demo.follow(platform, client.team(demo.TEAM), run)
    assert unknown.value.status == 404
