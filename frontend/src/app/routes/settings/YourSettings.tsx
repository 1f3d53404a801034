import type { Me } from "@/api/types";
import { Section } from "@/app/routes/settings/Section";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { DeleteWithText } from "@/components/DeleteWithText";
import { IdentityLinks } from "@/features/auth/IdentityLinks";
import { OwnKeys } from "@/features/auth/OwnKeys";
import { Profile } from "@/features/auth/Profile";
import { deleteAccount } from "@/features/auth/queries";
import { SessionTable } from "@/features/auth/SessionTable";
import { NoticeChoices } from "@/features/notices/NoticeChoices";

/** What concerns the signed-in person in every team. */
export function YourSettings({ me }: { me: Me }) {
  return (
    <>
      <Section id="profile">
        <Profile me={me}>
          <AsyncBoundary>
            <IdentityLinks />
          </AsyncBoundary>
        </Profile>
      </Section>
      <Section id="notices" help="Choose which notices you get, in all your teams. Changes are saved at once.">
        <AsyncBoundary>
          <NoticeChoices />
        </AsyncBoundary>
      </Section>
      <Section id="keys" help="A key lets the client, the command line or any program act as you.">
        <OwnKeys />
      </Section>
      <Section id="browsers" help="Sign out a browser that you do not know or no longer use.">
        <AsyncBoundary>
          <SessionTable />
        </AsyncBoundary>
      </Section>
      <Section id="delete-account" help="Your runs and datasets stay in their teams under your name. A deleted account cannot be restored.">
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
      </Section>
    </>
  );
}
