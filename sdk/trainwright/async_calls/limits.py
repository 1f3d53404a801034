"""Calls about the limits of a team and of its members."""

from __future__ import annotations

from trainwright.async_calls.team import AsyncTeamCalls
from trainwright.contracts.api.limits import LimitUse, MemberLimits, MemberLimitUse, TeamLimits
from trainwright.contracts.api.people import Quota, QuotaLimit


class AsyncLimitCalls(AsyncTeamCalls):
    """Limits of slots, monthly hours, storage, runs and priorities."""

    async def limits(self) -> LimitUse:
        """The team's limits besides its slots, how much of them is used, and this month's notices."""
        return await self._client.get(f"{self._path}/limits", LimitUse)

    async def set_limits(self, limits: TeamLimits) -> TeamLimits:
        """Replace the team's limits. For site admins."""
        return await self._client.put(f"{self._path}/limits", TeamLimits, json=limits.model_dump(mode="json"))

    async def set_slots(self, device: str, limit: int, guaranteed_slots: int | None = None) -> Quota:
        """Change how many slots of a device, ``cuda`` or ``cpu``, the team may use at once. For site admins.

        Args:
            device: ``cuda`` or ``cpu``.
            limit: slots that the team may use at once.
            guaranteed_slots: the team's share of them, which it gets back from runs that borrow; None leaves it as it is.
        """
        new = QuotaLimit(limit=limit, guaranteed_slots=guaranteed_slots).model_dump(exclude_none=True)
        return await self._client.put(f"{self._path}/quota/{device}", Quota, json=new)

    async def member_limits(self) -> list[MemberLimitUse]:
        """The limits of each member, by name, and how much of them their runs use."""
        return await self._client.get_list(f"{self._path}/limits/members", MemberLimitUse)

    async def set_member_limits(self, member_id: str, limits: MemberLimits) -> MemberLimits:
        """Replace the limits of a member. For owners."""
        new = limits.model_dump(mode="json")
        return await self._client.put(f"{self._path}/limits/members/{member_id}", MemberLimits, json=new)
