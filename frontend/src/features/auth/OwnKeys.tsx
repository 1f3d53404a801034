import { useSuspenseQuery } from "@tanstack/react-query";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { EmptyState } from "@/components/EmptyState";
import { KeyTable } from "@/components/KeyTable";
import { NewKeyForm } from "@/components/NewKeyForm";
import { createKey, deleteKey, keysQuery } from "@/features/auth/queries";

/** The person's API keys, and a form for a new one. */
export function OwnKeys() {
  return (
    <div className="flex flex-col gap-3">
      <NewKeyForm create={createKey} listKey={keysQuery.queryKey} manages="everything you may do" />
      <AsyncBoundary>
        <KeyList />
      </AsyncBoundary>
    </div>
  );
}

function KeyList() {
  const { data: keys } = useSuspenseQuery(keysQuery);
  if (keys.length === 0) {
    return <EmptyState title="No API keys yet.">Create one to use the client or the command line as yourself.</EmptyState>;
  }
  return <KeyTable keys={keys} revoke={deleteKey} listKey={keysQuery.queryKey} label="API keys" />;
}
