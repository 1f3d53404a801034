import { useQueryClient } from "@tanstack/react-query";
import { useNavigate, useParams, useRouteContext } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { Boundary } from "@/components/Boundary";
import { DeleteWithText } from "@/components/DeleteWithText";
import { TitleRow } from "@/components/TitleRow";
import { KeyTable } from "@/features/auth/KeyTable";
import { NewKeyForm } from "@/features/auth/NewKeyForm";
import { Profile } from "@/features/auth/Profile";
import { deleteAccount, meQuery } from "@/features/auth/queries";
import { SessionTable } from "@/features/auth/SessionTable";
import { useRefreshMe } from "@/features/auth/useRefreshMe";
import { PlatformVersion } from "@/features/platform/PlatformVersion";
import { AuditLog } from "@/features/teams/audit/AuditLog";
import { LimitMeters } from "@/features/teams/limits/LimitMeters";
import { MemberLimitTable } from "@/features/teams/limits/MemberLimitTable";
import { TeamLimitsForm } from "@/features/teams/limits/TeamLimitsForm";
import { InvitationTable } from "@/features/teams/members/InvitationTable";
import { InviteForm } from "@/features/teams/members/InviteForm";
import { MemberTable } from "@/features/teams/members/MemberTable";
import { TeamName } from "@/features/teams/members/TeamName";
import { deleteTeam } from "@/features/teams/queries";
import { NewWebhookForm } from "@/features/teams/webhooks/NewWebhookForm";
import { WebhookTable } from "@/features/teams/webhooks/WebhookTable";
import { QuotaForm } from "@/features/teams/usage/QuotaForm";
import { QuotaMeters } from "@/features/teams/usage/QuotaMeters";

const ROLE_TEXTS = {
  owner: "You are an owner: you also manage people.",
  editor: "You are an editor: you upload data and start runs.",
  viewer: "You are a viewer: you see everything and change nothing.",
} as const;

/** First the settings of the person, then those of the team. */
export function SettingsPage() {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const refreshMe = useRefreshMe();
  const client = useQueryClient();
  const navigate = useNavigate();
  const membership = me.teams.find(({ slug }) => slug === team);
  return (
    <>
      <TitleRow title="Settings" />
      <div className="gap-10 desk:grid desk:grid-cols-[10rem_minmax(0,56rem)]">
        <nav aria-label="Settings" className="mb-6 flex flex-wrap gap-x-4 gap-y-1 desk:sticky desk:top-6 desk:flex-col desk:self-start">
          {SECTIONS.filter(({ readers }) => readers === undefined || (readers === "owners" ? membership?.role === "owner" : me.site_admin)).map(({ id, title }) => (
            <a key={id} href={`#${id}`} className="text-accent underline-offset-2 hover:underline max-tablet:leading-10">
              {title}
            </a>
          ))}
        </nav>
        <div className="flex min-w-0 flex-col gap-10">
        <Section id="you">
          <Profile me={me} />
        </Section>
        <Section id="keys" help="A key lets the client, the command line or any program act as you.">
          <div className="flex flex-col gap-3">
            <NewKeyForm />
            <Boundary>
              <KeyTable />
            </Boundary>
          </div>
        </Section>
        <Section id="browsers" help="Sign out a browser that you do not know or no longer use.">
          <Boundary>
            <SessionTable />
          </Boundary>
        </Section>
        <Section id="members" help={`Team ${membership?.name ?? team}. ${membership === undefined ? "" : ROLE_TEXTS[membership.role]}`}>
          <div className="flex flex-col gap-4">
            {membership?.role === "owner" && (
              <div className="max-w-96">
                <TeamName key={membership.name} team={team} name={membership.name} onChanged={refreshMe} />
              </div>
            )}
            <Boundary>
              <MemberTable
                team={team}
                me={me.id}
                onChanged={refreshMe}
                onLeft={async () => {
                  await client.query({ ...meQuery, staleTime: 0 });
                  await navigate({ to: "/" });
                }}
              />
            </Boundary>
          </div>
        </Section>
        {membership?.role === "owner" && (
          <Section id="invitations" help="Invite people to the team by sending them a link.">
            <div className="flex flex-col gap-3">
              <InviteForm team={team} />
              <Boundary>
                <InvitationTable team={team} />
              </Boundary>
            </div>
          </Section>
        )}
        <Section id="quota" help={`What the team may use at once. Slots beyond its guaranteed share are borrowed: its runs leave them when another team needs its own share. ${me.site_admin ? "As a site admin you can change both." : "Site admins set both."}`}>
          <Boundary>
            <QuotaMeters team={team} />
            {me.site_admin && <QuotaForm team={team} />}
          </Boundary>
        </Section>
        <Section id="limits" help="Hours a month, storage, runs and priorities. An empty field means no limit. Site admins limit the team, owners its members.">
          <div className="flex flex-col gap-4">
            <Boundary>
              <LimitMeters team={team} />
              {me.site_admin && <TeamLimitsForm team={team} />}
            </Boundary>
            <Boundary>
              <MemberLimitTable team={team} isOwner={membership?.role === "owner"} />
            </Boundary>
          </div>
        </Section>
        {membership?.role === "owner" && (
          <Section id="webhooks" help="Signed messages about the team's runs and their nodes, posted to an address in the Standard Webhooks format.">
            <div className="flex flex-col gap-3">
              <NewWebhookForm team={team} />
              <Boundary>
                <WebhookTable team={team} />
              </Boundary>
            </div>
          </Section>
        )}
        {membership?.role === "owner" && (
          <Section id="audit" help="Who changed what in the team, and from where. Entries cannot be changed or deleted.">
            <AuditLog team={team} />
          </Section>
        )}
        {me.site_admin && (
          <Section
            id="site-audit"
            help="Changes outside of teams, and from where: accounts, keys, sign-ins and failed ones, nodes, new and deleted teams. Only site admins see them."
          >
            <AuditLog team={null} />
          </Section>
        )}
        <Section id="deletion" help="What is deleted here cannot be restored.">
          <div className="flex flex-wrap gap-3">
            <DeleteWithText
              title="Delete account"
              consequence="Your sessions, API keys and memberships are deleted. Your runs and datasets stay in their teams under your name."
              label="Your password"
              type="password"
              isReady={(typed) => typed !== ""}
              onDelete={async (password) => {
                await deleteAccount(password);
                window.location.assign("/");
              }}
            />
            {membership?.role === "owner" && (
              <DeleteWithText
                title="Delete team"
                consequence={`${membership.name} is deleted with its runs, checkpoints, datasets, uploads and usage. All its runs must have ended.`}
                label={`Type ${team} to confirm`}
                type="text"
                isReady={(typed) => typed === team}
                onDelete={async (confirm) => {
                  await deleteTeam(team, confirm);
                  window.location.assign("/");
                }}
              />
            )}
          </div>
        </Section>
        <PlatformVersion />
        </div>
      </div>
    </>
  );
}

interface SectionInfo {
  id: string;
  title: string;
  /** Who sees it, if not everybody. */
  readers?: "owners" | "site admins";
}

const SECTIONS: readonly SectionInfo[] = [
  { id: "you", title: "You" },
  { id: "keys", title: "Your API keys" },
  { id: "browsers", title: "Where you are signed in" },
  { id: "members", title: "Team and members" },
  { id: "invitations", title: "Invitations", readers: "owners" },
  { id: "quota", title: "Quota" },
  { id: "limits", title: "Limits" },
  { id: "webhooks", title: "Webhooks", readers: "owners" },
  { id: "audit", title: "Audit log", readers: "owners" },
  { id: "site-audit", title: "Audit log of the site", readers: "site admins" },
  { id: "deletion", title: "Delete" },
];

function Section({ id, help, children }: { id: string; help?: string; children: ReactNode }) {
  return (
    <section id={id} className="scroll-mt-4">
      <h2 className="mb-2 font-semibold">{SECTIONS.find((section) => section.id === id)?.title}</h2>
      {help !== undefined && <p className="mb-3 text-soft">{help}</p>}
      {children}
    </section>
  );
}
