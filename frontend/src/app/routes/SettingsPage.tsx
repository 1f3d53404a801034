import { useNavigate, useParams, useRouteContext } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { NotFound } from "@/app/frame/NotFound";
import { Section } from "@/app/routes/settings/Section";
import { SettingsNav } from "@/app/routes/settings/SettingsNav";
import { visiblePages } from "@/app/routes/settings/settingsPages";
import { TeamSettings } from "@/app/routes/settings/TeamSettings";
import { YourSettings } from "@/app/routes/settings/YourSettings";
import { TitleRow } from "@/components/TitleRow";
import { useRefreshMe } from "@/features/auth/useRefreshMe";
import { PlatformVersion } from "@/features/platform/PlatformVersion";
import { NewTeamForm } from "@/features/teams/NewTeamForm";
import { AuditLog } from "@/features/teams/audit/AuditLog";

/** A page of the settings of the person, of the team, or of the site. */
export function SettingsPage() {
  const { team, page } = useParams({ from: "/$team/settings/$page" });
  const { me } = useRouteContext({ from: "/$team" });
  const refreshMe = useRefreshMe();
  const navigate = useNavigate();
  const name = me.teams.find(({ slug }) => slug === team)?.name ?? team;
  const pages = visiblePages(me, team);
  const group = pages.find(({ id }) => id === page)?.group;
  if (group === undefined) return <NotFound />;
  const isLog = page === "audit" || page === "site-audit";
  return (
    <>
      <TitleRow title="Settings" />
      <div className={`gap-10 desk:grid ${isLog ? "desk:grid-cols-[12rem_minmax(0,1fr)]" : "desk:grid-cols-[12rem_minmax(0,56rem)]"}`}>
        <SettingsNav team={team} page={page} pages={pages} />
        <div className="flex min-w-0 flex-col gap-12">
          {group === "You" && (
            <Group title="You">
              <YourSettings me={me} />
            </Group>
          )}
          {group === "Team" && (
            <Group title={`Team ${name}`}>
              <TeamSettings team={team} me={me} />
            </Group>
          )}
          {group === "Site" && (
            <Group title="Site">
              <Section id="new-team" help="You become its owner, and can invite others.">
                <NewTeamForm
                  onCreated={async (slug) => {
                    await refreshMe();
                    await navigate({ to: "/$team/settings/$page", params: { team: slug, page: "members" } });
                  }}
                />
              </Section>
              <Section
                id="site-audit"
                help="Changes outside of teams, and from where: accounts, keys, sign-ins, failed sign-ins, nodes, new and deleted teams. Only site admins see them."
              >
                <AuditLog team={null} />
              </Section>
            </Group>
          )}
          <PlatformVersion />
        </div>
      </div>
    </>
  );
}

function Group({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section aria-label={title} className="min-w-0">
      <h2 className="max-desk:sr-only mb-4 border-b pb-1 font-semibold text-soft">{title}</h2>
      <div className="flex min-w-0 flex-col gap-8">{children}</div>
    </section>
  );
}
