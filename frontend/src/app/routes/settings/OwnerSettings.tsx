import { Section } from "@/app/routes/settings/Section";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { DeleteWithText } from "@/components/DeleteWithText";
import { AuditLog } from "@/features/teams/audit/AuditLog";
import { deleteTeam } from "@/features/teams/queries";
import { NewWebhookForm } from "@/features/teams/webhooks/NewWebhookForm";
import { WebhookTable } from "@/features/teams/webhooks/WebhookTable";

/** What only owners of a team see. */
export function OwnerSettings({ team, name }: { team: string; name: string }) {
  return (
    <>
      <Section id="webhooks" help="Signed messages about the team's runs and their nodes, posted to an address in the Standard Webhooks format.">
        <div className="flex flex-col gap-3">
          <NewWebhookForm team={team} />
          <AsyncBoundary>
            <WebhookTable team={team} />
          </AsyncBoundary>
        </div>
      </Section>
      <Section id="audit" help="Who changed what in the team, and from where. Entries cannot be changed or deleted.">
        <AuditLog team={team} />
      </Section>
      <Section
        id="delete-team"
        help="This deletes the team's runs, checkpoints, datasets, uploads and usage. All runs must have ended. A deleted team cannot be restored."
      >
        <DeleteWithText
          title="Delete team"
          consequence={`${name} is deleted with its runs, checkpoints, datasets, uploads and usage. All its runs must have ended.`}
          label={`Type ${team} to confirm`}
          type="text"
          isReady={(typed) => typed === team}
          onDelete={async (confirm) => {
            await deleteTeam(team, confirm);
            window.location.assign("/");
          }}
        />
      </Section>
    </>
  );
}
