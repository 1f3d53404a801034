import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { ServiceAccount } from "@/api/types";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { EmptyState } from "@/components/EmptyState";
import { KeyTable } from "@/components/KeyTable";
import { NewKeyForm } from "@/components/NewKeyForm";
import { createServiceKey, deleteServiceAccount, deleteServiceKey, serviceAccountsQuery } from "@/features/teams/serviceAccounts/queries";

/** The service accounts of the team, each with its keys. */
export function ServiceAccountList({ team }: { team: string }) {
  const { data: accounts } = useSuspenseQuery(serviceAccountsQuery(team));
  const [deleting, setDeleting] = useState<ServiceAccount | null>(null);
  if (accounts.length === 0) return <EmptyState title="No service accounts yet.">Create one for a program that several people rely on, such as a nightly job.</EmptyState>;
  return (
    <>
      {accounts.map((account) => (
        <Account
          key={account.id}
          team={team}
          account={account}
          onDelete={() => {
            setDeleting(account);
          }}
        />
      ))}
      {deleting !== null && (
        <DeleteDialog
          team={team}
          account={deleting}
          onClose={() => {
            setDeleting(null);
          }}
        />
      )}
    </>
  );
}

function Account({ team, account, onDelete }: { team: string; account: ServiceAccount; onDelete: () => void }) {
  const listKey = serviceAccountsQuery(team).queryKey;
  return (
    <section aria-label={account.name} className="panel flex flex-col gap-3 p-4">
      <div className="flex flex-wrap items-center justify-between gap-2">
        <h3 className="min-w-0 break-words">
          <span className="font-medium">{account.name}</span> <span className="text-soft">{account.role}</span>
        </h3>
        <Button variant="danger" aria-label={`Delete ${account.name}`} onClick={onDelete}>
          Delete…
        </Button>
      </div>
      {account.keys.length > 0 && <KeyTable keys={account.keys} revoke={(key) => deleteServiceKey(team, account.id, key)} listKey={listKey} label={`Keys of ${account.name}`} />}
      <NewKeyForm create={(key) => createServiceKey(team, account.id, key)} listKey={listKey} manages="all that its role allows" />
    </section>
  );
}

function DeleteDialog({ team, account, onClose }: { team: string; account: ServiceAccount; onClose: () => void }) {
  const [cancelsRuns, setCancelsRuns] = useState(false);
  const client = useQueryClient();
  const deletion = useMutation({
    mutationFn: () => deleteServiceAccount(team, account.id, cancelsRuns ? "cancel" : "keep"),
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: ["team", team] });
    },
  });
  return (
    <ConfirmDialog
      title={`Delete ${account.name}?`}
      consequence="Its keys stop working at once. Its runs continue unless you cancel them, and what it created stays under its name."
      confirmLabel="Delete"
      cancelLabel="Cancel"
      busy={deletion.isPending}
      error={deletion.error}
      onConfirm={() => {
        deletion.mutate();
      }}
      onClose={onClose}
    >
      <label className="flex items-center gap-2">
        <input
          type="checkbox"
          checked={cancelsRuns}
          onChange={(event) => {
            setCancelsRuns(event.target.checked);
          }}
        />
        Cancel its unfinished runs
      </label>
    </ConfirmDialog>
  );
}
