import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import type { Me } from "@/api/types";
import { OwnerSettings } from "@/app/routes/settings/OwnerSettings";
import { Section } from "@/app/routes/settings/Section";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { meQuery } from "@/features/auth/queries";
import { useRefreshMe } from "@/features/auth/useRefreshMe";
import { LimitMeters } from "@/features/teams/limits/LimitMeters";
import { MemberLimitTable } from "@/features/teams/limits/MemberLimitTable";
import { TeamLimitsForm } from "@/features/teams/limits/TeamLimitsForm";
import { InvitationTable } from "@/features/teams/members/InvitationTable";
import { InviteForm } from "@/features/teams/members/InviteForm";
import { MemberTable } from "@/features/teams/members/MemberTable";
import { TeamName } from "@/features/teams/members/TeamName";
import { NewServiceAccountForm } from "@/features/teams/serviceAccounts/NewServiceAccountForm";
import { ServiceAccountList } from "@/features/teams/serviceAccounts/ServiceAccountList";
import { QuotaMeters } from "@/features/teams/usage/QuotaMeters";

const ROLE_TEXTS = {
  owner: "You are an owner: you can view everything, upload data, start and change runs, and manage people.",
  editor: "You are an editor: you can view everything, upload data, and start and change runs.",
  viewer: "You are a viewer: you can view everything, but change nothing.",
} as const;

const LIMITS_TEXT = "What the team may use. Slots beyond its guaranteed share are borrowed: its runs leave them when another team needs its own share.";

/** What concerns one team. Owners see more than others. */
export function TeamSettings({ team, me }: { team: string; me: Me }) {
  const refreshMe = useRefreshMe();
  const client = useQueryClient();
  const navigate = useNavigate();
  const membership = me.teams.find(({ slug }) => slug === team);
  const isOwner = membership?.role === "owner";
  return (
    <>
      <Section id="members" help={membership === undefined ? undefined : ROLE_TEXTS[membership.role]}>
        <div className="flex flex-col gap-4">
          {isOwner && (
            <div className="max-w-96">
              <TeamName key={membership.name} team={team} name={membership.name} onChanged={refreshMe} />
            </div>
          )}
          <AsyncBoundary>
            <MemberTable
              team={team}
              me={me.id}
              onChanged={refreshMe}
              onLeft={async () => {
                await client.query({ ...meQuery, staleTime: 0 });
                await navigate({ to: "/" });
              }}
            />
          </AsyncBoundary>
        </div>
      </Section>
      {isOwner && (
        <Section id="invitations" help="Invite people to the team by sending them a link.">
          <div className="flex flex-col gap-3">
            <InviteForm team={team} />
            <AsyncBoundary>
              <InvitationTable team={team} />
            </AsyncBoundary>
          </div>
        </Section>
      )}
      {isOwner && (
        <Section id="service-accounts" help="Members of the team for programs, such as a nightly job. They cannot sign in; they use API keys.">
          <div className="flex flex-col gap-4">
            <NewServiceAccountForm team={team} />
            <AsyncBoundary>
              <ServiceAccountList team={team} />
            </AsyncBoundary>
          </div>
        </Section>
      )}
      <Section id="limits" help={`${LIMITS_TEXT} ${me.site_admin ? "As a site admin you can change these limits." : "Site admins set these limits."}`}>
        <div className="flex flex-col gap-4">
          <AsyncBoundary>
            <QuotaMeters team={team} />
            <LimitMeters team={team} />
            {me.site_admin && <TeamLimitsForm team={team} />}
          </AsyncBoundary>
        </div>
      </Section>
      <Section id="member-limits" help={`What each member may use of the team's limits. ${isOwner ? "As an owner you can change this." : "Owners set this."}`}>
        <AsyncBoundary>
          <MemberLimitTable team={team} isOwner={isOwner} />
        </AsyncBoundary>
      </Section>
      {isOwner && <OwnerSettings team={team} name={membership.name} />}
    </>
  );
}
