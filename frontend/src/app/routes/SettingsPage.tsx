import { useParams, useRouteContext } from "@tanstack/react-router";
import { Boundary } from "@/components/Boundary";
import { TitleRow } from "@/components/TitleRow";
import { KeyTable } from "@/features/auth/KeyTable";
import { NewKeyForm } from "@/features/auth/NewKeyForm";
import { InvitationTable } from "@/features/teams/InvitationTable";
import { InviteForm } from "@/features/teams/InviteForm";
import { MemberTable } from "@/features/teams/MemberTable";
import { QuotaMeters } from "@/features/teams/QuotaMeters";

const HEADING = "mb-2 font-semibold";

export function SettingsPage() {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const owns = me.teams.find(({ slug }) => slug === team)?.role === "owner";
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
        {owns && (
          <section>
            <h2 className={HEADING}>Invitations</h2>
            <p className="mb-3 text-soft">Somebody comes into the team by a link that you send to them.</p>
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
      </div>
    </>
  );
}
