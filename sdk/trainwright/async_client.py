"""The typed client of a Trainwright server, for programs and users' own scripts.

::

    async with AsyncClient("https://train.example.org", key=os.environ["TRAINWRIGHT_KEY"]) as client:
        team = client.team("vision-lab")
        dataset = await team.upload("letters", [Path("letters.jsonl")])
        run = await team.submit(RunSpec(name="pilot", data=DataSpec(dataset=dataset.id)))
        async for points in team.stream_metrics(run.id):
            print(points.steps[-1], points.series["loss"][-1])
        await team.download(run.id, Path("pilot"))

Its only state is the connection. If the connection breaks, requests that may be repeated are retried: reads, validating,
estimating and previewing, edits, cancelling and pausing, and under an idempotency key what creates a run or a dataset. Uploads and
downloads continue where they stopped. Nothing else is retried. If the server is busy (429 and 503), everything is, after
the time that it asks for (Retry-After), unless that is more than half a minute. `wait` and `stream_metrics` follow a run for days, so
they tolerate a server that is down for minutes. Errors of the server raise `transport.errors.ApiError` with code, detail
and fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack
from urllib.parse import quote

from trainwright.async_calls.audit import AsyncAuditCalls, AuditFilter, read_audit
from trainwright.async_calls.checkpoints import AsyncCheckpointCalls
from trainwright.async_calls.datasets import AsyncDatasetCalls
from trainwright.async_calls.limits import AsyncLimitCalls
from trainwright.async_calls.monitoring import AsyncMonitoringCalls
from trainwright.async_calls.people import AsyncPeopleCalls
from trainwright.async_calls.planning import AsyncPlanningCalls
from trainwright.async_calls.queue import AsyncQueueCalls
from trainwright.async_calls.runs import AsyncRunCalls
from trainwright.async_calls.webhooks import AsyncWebhookCalls
from trainwright.contracts.api.actions import AllowedSlots
from trainwright.contracts.api.audit import AuditEntry
from trainwright.contracts.api.device import DeviceLogin, DeviceRequest, NewDeviceLogin
from trainwright.contracts.api.envelopes import Health, Page, SpecInfo
from trainwright.contracts.api.nodes import JoinToken, Node, NodeLoad
from trainwright.contracts.api.notices import NoticeChoice, NoticeChoices, NoticePage, NoticeSettings
from trainwright.contracts.api.oidc import LinkedIdentity, SignInProvider
from trainwright.contracts.api.people import (
    ApiKey,
    CreatedKey,
    KeyScope,
    Me,
    NewKey,
    NewTeam,
    OneTimeLink,
    SignedInBrowser,
    StorageUse,
    Team,
)
from trainwright.transport.async_connection import AsyncConnection


class AsyncClient(AsyncConnection):
    """Calls that do not belong to a team: accounts, nodes, the spec."""

    def team(self, slug: str) -> AsyncTeamClient:
        """Calls of one team."""
        return AsyncTeamClient(self, slug)

    async def health(self) -> Health:
        return await self.get("/health", Health)

    async def me(self) -> Me:
        return await self.get("/me", Me)

    async def change_name(self, name: str) -> Me:
        """Change your name, as others see it."""
        return await self.patch("/me", Me, json={"name": name})

    async def change_password(self, current: str, new: str) -> None:
        """Change your password, which signs you out in all browsers. API keys stay valid."""
        await self.post_only("/me/password", json={"current_password": current, "password": new})

    async def delete_account(self, current_password: str) -> None:
        """Delete your account. Your runs and datasets stay in their teams."""
        await self.post_only("/me/delete", json={"current_password": current_password})

    async def mail_sign_in_link(self, email: str) -> None:
        """Request a sign-in link by email to ``email``, if it has an account. The link confirms the address, and can set a new
        password."""
        await self.post_only("/auth/mailed-link", json={"email": email})

    async def teams(self) -> list[Team]:
        """The teams you are in."""
        return await self.get_list("/teams", Team)

    async def create_team(self, slug: str, name: str) -> Team:
        """Create a team, whose owner you become. For site admins."""
        new = NewTeam(slug=slug, name=name).model_dump()
        return await self.post("/teams", Team, json=new)

    async def spec(self) -> SpecInfo:
        """JSON Schema of RunSpec and the presets."""
        return await self.get("/spec", SpecInfo)

    async def nodes(self) -> list[Node]:
        return await self.get_list("/nodes", Node)

    async def node_load(self, node_id: str, hours: int = 24) -> NodeLoad:
        """The use of a node's hardware over the last hours, at most 24. For site admins."""
        return await self.get(f"/nodes/{node_id}/load", NodeLoad, params={"hours": hours})

    async def set_draining(self, node_id: str, draining: bool, *, move_runs: bool = False) -> Node:
        """Drain a node, with ``move_runs`` also of its present runs, or undrain it. For site admins."""
        more = {"move_runs": True} if move_runs else {}
        return await self.patch(f"/nodes/{node_id}", Node, json={"draining": draining} | more)

    async def delete_node(self, node_id: str) -> None:
        """Remove a node without runs, and revoke its token. For site admins."""
        await self.delete(f"/nodes/{node_id}")

    async def set_quarantined(self, node_id: str, quarantined: bool) -> Node:
        """Quarantine a node until it passes a self-test, or release it without one. For site admins."""
        return await self.patch(f"/nodes/{node_id}", Node, json={"quarantined": quarantined})

    async def allow_slots(self, node_id: str, cuda: int | None = None, cpu: int | None = None) -> Node:
        """Let a node have more slots than at its join, or fewer. For site admins."""
        allowed = AllowedSlots(cuda=cuda, cpu=cpu).model_dump(exclude_none=True)
        return await self.patch(f"/nodes/{node_id}", Node, json={"allowed_slots": allowed})

    async def use_link(self, link: OneTimeLink) -> Me:
        """Use a one-time link, which also signs in this client."""
        return await self.post("/auth/link", Me, json=link.model_dump(exclude_none=True))

    async def api_keys(self) -> list[ApiKey]:
        """Your API keys, newest first, without their secrets."""
        return await self.get_list("/me/keys", ApiKey)

    async def create_key(
        self, name: str, scope: KeyScope = KeyScope.MANAGE, lifetime_days: int | None = None
    ) -> CreatedKey:
        """Create an API key, which expires after ``lifetime_days``. Its secret is returned only here."""
        new = NewKey(name=name, scope=scope, lifetime_days=lifetime_days)
        return await self.post(
            "/me/keys", CreatedKey, json=new.model_dump(mode="json", exclude_defaults=True)
        )

    async def revoke_key(self, key_id: str) -> None:
        """Revoke one of your API keys."""
        await self.delete(f"/me/keys/{key_id}")

    async def revoke_used_key(self) -> None:
        """Revoke the API key of this client, whatever its scope."""
        await self.delete("/me/keys/current")

    async def start_device_login(
        self, client: str, scope: KeyScope = KeyScope.MANAGE, lifetime_days: int | None = 90
    ) -> DeviceLogin:
        """Ask for an API key that a signed-in person approves on a page. Needs no key."""
        new = NewDeviceLogin(client=client, scope=scope, lifetime_days=lifetime_days)
        return await self.post("/auth/device", DeviceLogin, json=new.model_dump(mode="json"))

    async def redeem_device_code(self, device_code: str) -> CreatedKey:
        """The key, once it is approved. Until then `ApiError` with the code `authorization_pending`, or `slow_down` if asked
        before `DeviceLogin.interval` has passed. Needs no key."""
        return await self.post("/auth/device/key", CreatedKey, json={"device_code": device_code})

    async def device_request(self, user_code: str) -> DeviceRequest:
        """What the program that shows this code asks for."""
        return await self.get(f"/me/device/{quote(user_code, safe='')}", DeviceRequest)

    async def decide_device_login(self, user_code: str, *, approve: bool) -> None:
        """Approve or refuse the program that shows this code."""
        await self.post_only("/me/device", json={"user_code": user_code, "approve": approve})

    async def sessions(self) -> list[SignedInBrowser]:
        """The browsers in which you are signed in, newest first."""
        return await self.get_list("/me/sessions", SignedInBrowser)

    async def end_session(self, session_id: str) -> None:
        """Sign one of your browsers out."""
        await self.delete(f"/me/sessions/{session_id}")

    async def notices(
        self, *, unread: bool = False, limit: int = 50, cursor: str | None = None
    ) -> NoticePage:
        """Your notices, newest first, with the number of those that you have not read."""
        params = {"unread": "true" if unread else "false", "limit": limit, "cursor": cursor}
        given = {name: value for name, value in params.items() if value is not None}
        return await self.get("/me/notices", NoticePage, given)

    async def mark_notices_read(self, notice_ids: Sequence[str] | None = None) -> None:
        """Mark notices as read; all of them by default."""
        await self.post_only(
            "/me/notices/read", json={"ids": None if notice_ids is None else list(notice_ids)}
        )

    async def notice_settings(self) -> NoticeSettings:
        """Which notices you get, in the app and by email."""
        return await self.get("/me/notices/settings", NoticeSettings)

    async def choose_notices(self, *choices: NoticeChoice) -> NoticeSettings:
        """Choose which notices you get. Kinds that you leave out do not change."""
        new = NoticeChoices(choices=choices).model_dump(mode="json")
        return await self.put("/me/notices/settings", NoticeSettings, json=new)

    async def sign_in_provider(self) -> SignInProvider:
        """The identity provider with which people can sign in on the pages."""
        return await self.get("/auth/oidc", SignInProvider)

    async def identities(self) -> list[LinkedIdentity]:
        """Your identities at identity providers, which sign in to your account."""
        return await self.get_list("/me/oidc", LinkedIdentity)

    async def unlink_identity(self, identity_id: str) -> None:
        """Unlink an identity from your account. Refused if you have no password."""
        await self.delete(f"/me/oidc/{identity_id}")

    async def audit(
        self, words: str = "", limit: int = 100, cursor: str | None = None, **only: Unpack[AuditFilter]
    ) -> Page[AuditEntry]:
        """As `AsyncTeamClient.audit`, of changes outside of teams: accounts, keys, sign-ins, nodes, new and deleted teams. For site
        admins."""
        return await read_audit(self, "/audit", words, limit, cursor, only)

    async def export_audit(self, file: Path) -> Path:
        """As `AsyncTeamClient.export_audit`, of changes outside of teams. For site admins."""
        await self.save_as("/audit/export", {}, file)
        return file

    async def create_join_token(self, node_name: str) -> JoinToken:
        """Create a one-time token for the node of that name to join with."""
        return await self.post("/join-tokens", JoinToken, json={"name": node_name})


class AsyncTeamClient(
    AsyncDatasetCalls,
    AsyncPlanningCalls,
    AsyncRunCalls,
    AsyncQueueCalls,
    AsyncMonitoringCalls,
    AsyncCheckpointCalls,
    AsyncPeopleCalls,
    AsyncLimitCalls,
    AsyncAuditCalls,
    AsyncWebhookCalls,
):
    """Calls of one team. Get it from `AsyncClient.team`."""

    _client: AsyncClient

    def __init__(self, client: AsyncClient, slug: str) -> None:
        self._client = client
        self.slug = slug
        self._path = f"/teams/{quote(slug, safe='')}"

    async def show(self) -> Team:
        """The team, its quota and its storage."""
        return await self._client.get(self._path, Team)

    async def set_storage(self, limit_bytes: int) -> StorageUse:
        """Change the upload limit of the team. For site admins."""
        return await self._client.put(f"{self._path}/storage", StorageUse, json={"limit_bytes": limit_bytes})
