import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Tokenizer } from "@/api/types";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Copyable } from "@/components/Copyable";
import { ForEditors } from "@/components/ForEditors";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { Time } from "@/components/Time";
import { deleteTokenizer, tokenizersQuery } from "@/features/datasets/queries";
import { count } from "@/lib/format";

/** The team's uploaded tokenizers. */
export function TokenizerTable({ team }: { team: string }) {
  const { data: tokenizers } = useSuspenseQuery(tokenizersQuery(team));
  const [deleting, setDeleting] = useState<Tokenizer | null>(null);
  const client = useQueryClient();
  const deletion = useMutation({
    mutationFn: (tokenizer: Tokenizer) => deleteTokenizer(team, tokenizer.id),
    onSuccess: () => {
      setDeleting(null);
      void client.invalidateQueries({ queryKey: tokenizersQuery(team).queryKey });
    },
  });
  if (tokenizers.length === 0) {
    return <p className="text-soft">No tokenizers yet. Without one, each run trains its own on its data or uses bytes.</p>;
  }
  return (
    <>
      <Table
        label="Tokenizers"
        head={
          <>
            <Th>name</Th>
            <Th className="text-right">vocabulary</Th>
            <Th className="max-tablet:hidden">end of text</Th>
            <Th className="max-tablet:hidden">id</Th>
            <Th className="text-right max-tablet:hidden">uploaded</Th>
            <Th className="max-tablet:hidden">by</Th>
            <Th>
              <span className="sr-only">actions</span>
            </Th>
          </>
        }
      >
        {tokenizers.map((tokenizer) => (
          <tr key={tokenizer.id} className={rowClass}>
            <Td className="max-w-80 min-w-32 truncate font-medium" title={tokenizer.name}>
              {tokenizer.name}
            </Td>
            <Td className="text-right">{count(tokenizer.vocabulary)}</Td>
            <Td className="font-mono text-mono max-tablet:hidden">{tokenizer.end_of_text}</Td>
            <Td className="max-tablet:hidden">
              <Copyable text={tokenizer.id} />
            </Td>
            <Td className="text-right text-soft max-tablet:hidden">
              <Time at={tokenizer.created} />
            </Td>
            <Td className="max-w-32 truncate text-soft max-tablet:hidden">{tokenizer.created_by ?? "–"}</Td>
            <Td className="text-right">
              <ForEditors>
                <Button
                  variant="quiet"
                  onClick={() => {
                    deletion.reset();
                    setDeleting(tokenizer);
                  }}
                >
                  Delete <span className="sr-only">{tokenizer.name}</span>
                </Button>
              </ForEditors>
            </Td>
          </tr>
        ))}
      </Table>
      {deleting !== null && (
        <ConfirmDialog
          title={`Delete tokenizer ${deleting.name}?`}
          consequence="Data already prepared with it is kept, but new preparations cannot use it. This cannot be undone."
          confirmLabel="Delete tokenizer"
          cancelLabel="Cancel"
          busy={deletion.isPending}
          error={deletion.error}
          onConfirm={() => {
            deletion.mutate(deleting);
          }}
          onClose={() => {
            setDeleting(null);
          }}
        />
      )}
    </>
  );
}
