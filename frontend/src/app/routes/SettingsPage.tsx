import { useParams, useRouteContext } from "@tanstack/react-router";
import { Boundary } from "@/components/Boundary";
import { TitleRow } from "@/components/TitleRow";
import { KeyTable } from "@/features/auth/KeyTable";
import { NewKeyForm } from "@/features/auth/NewKeyForm";
import { SessionTable } from "@/features/auth/SessionTable";
import { InvitationTable } from "@/features/teams/members/InvitationTable";
import { InviteForm } from "@/features/teams/members/InviteForm";
import { MemberTable } from "@/features/teams/members/MemberTable";
import { QuotaMeters } from "@/features/teams/usage/QuotaMeters";

const HEADING = "mb-2 font-semibold";

export function SettingsPage() {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const isOwner = me.teams.find(({ slug }) => slug === team)?.role === "owner";
  return (
    <>
      <TitleRow title="Settings" />
      <div className="flex max-w-4xl flex-col gap-10">
        <section>
          <h2 className={HEADING}>Quota of {team}</h2>
          <Boundary>
            <QuotaMeters team={team} />
          </Boundary>
        </section>
        <section>
          <h2 className={HEADING}>Members</h2>
          <Boundary>
            <MemberTable team={team} />
          </Boundary>
        </section>
        {isOwner && (
          <section>
            <h2 className={HEADING}>Invitations</h2>
            <p className="mb-3 text-soft">Invite people to the team by sending them a link.</p>
            <div className="flex flex-col gap-3">
              <InviteForm team={team} />
              <Boundary>
                <InvitationTable team={team} />
              </Boundary>
            </div>
          </section>
        )}
        <section>
          <h2 className={HEADING}>Your API keys</h2>
          <p className="mb-3 text-soft">A key lets the client, the command line or any program act as you.</p>
          <div className="flex flex-col gap-3">
            <NewKeyForm />
            <Boundary>
              <KeyTable />
            </Boundary>
          </div>
        </section>
        <section>
          <h2 className={HEADING}>Where you are signed in</h2>
          <p className="mb-3 text-soft">Sign out a browser that you do not know or no longer use.</p>
          <Boundary>
            <SessionTable />
          </Boundary>
        </section>
      </div>
    </>
  );
}
