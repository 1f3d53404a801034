import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { ApiKey } from "@/api/types";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { Time } from "@/components/Time";

interface Props {
  keys: readonly ApiKey[];
  revoke: (key: string) => Promise<void>;
  /** The query of the list with the keys. */
  listKey: readonly unknown[];
  label: string;
}

export function KeyTable({ keys, revoke: revokeKey, listKey, label }: Props) {
  const [revoking, setRevoking] = useState<ApiKey | null>(null);
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: revokeKey,
    onSuccess: async () => {
      setRevoking(null);
      await client.invalidateQueries({ queryKey: listKey });
    },
  });
  return (
    <>
      <Table
        label={label}
        head={
          <>
            <Th>name</Th>
            <Th>scope</Th>
            <Th className="max-desk:hidden">created</Th>
            <Th>expires</Th>
            <Th className="max-tablet:hidden">last used</Th>
            <Th>
              <span className="sr-only">actions</span>
            </Th>
          </>
        }
      >
        {keys.map((key) => (
          <tr key={key.id} className={rowClass}>
            <Td className="wrap-anywhere">
              <span className="font-medium">{key.name}</span> <span className="font-mono text-mono text-soft max-tablet:hidden">{key.prefix}…</span>
            </Td>
            <Td>{key.scope}</Td>
            <Td className="text-soft max-desk:hidden">
              <Time at={key.created} />
            </Td>
            <Td className="text-soft">
              <KeyExpiry expires={key.expires} />
            </Td>
            <Td className="text-soft max-tablet:hidden">{key.last_used ? <Time at={key.last_used} /> : "never"}</Td>
            <Td className="text-right">
              <button
                type="button"
                className="text-bad hover:underline max-tablet:min-h-11 max-tablet:min-w-11"
                onClick={() => {
                  setRevoking(key);
                }}
              >
                Revoke<span className="sr-only"> {key.name}</span>
              </button>
            </Td>
          </tr>
        ))}
      </Table>
      {revoking !== null && (
        <ConfirmDialog
          title={`Revoke ${revoking.name}?`}
          consequence="Programs that use this key lose access immediately. This cannot be undone."
          confirmLabel="Revoke"
          cancelLabel="Cancel"
          busy={revoke.isPending}
          error={revoke.error}
          onConfirm={() => {
            revoke.mutate(revoking.id);
          }}
          onClose={() => {
            revoke.reset();
            setRevoking(null);
          }}
        />
      )}
    </>
  );
}

function KeyExpiry({ expires }: { expires: string | null | undefined }) {
  if (expires == null) return "never";
  const isOver = new Date(expires) <= new Date();
  return (
    <span className={isOver ? "text-bad" : ""}>
      {isOver && "expired "}
      <Time at={expires} />
    </span>
  );
}
