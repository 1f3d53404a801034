import { useSuspenseQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import type { Checkpoint } from "@/api/types";
import { Bytes } from "@/components/Bytes";
import { EmptyState } from "@/components/EmptyState";
import { StateIcon } from "@/components/StateIcon";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { Time } from "@/components/Time";
import { archiveUrl, checkpointsQuery } from "@/features/checkpoints/queries";
import { count } from "@/lib/format";

const KINDS: Record<Checkpoint["kind"], string> = {
  export: "Weights, Hugging Face layout",
  state: "Resumable state",
};

interface Props {
  team: string;
  run: string;
  live: boolean;
}

export function CheckpointTable({ team, run, live }: Props) {
  const { data } = useSuspenseQuery(checkpointsQuery(team, run, live));
  if (data.length === 0) {
    return (
      <EmptyState title="No checkpoints yet.">
        {live ? "The first appears here once it is saved, sent and verified." : "This run ended before it saved one."}
      </EmptyState>
    );
  }
  const newestFirst = data.toSorted((a, b) => b.step - a.step || a.kind.localeCompare(b.kind));
  return (
    <Table
      label="Checkpoints"
      head={
        <>
          <Th className="text-right">step</Th>
          <Th>content</Th>
          <Th>verified</Th>
          <Th className="text-right">attempt</Th>
          <Th className="text-right">size</Th>
          <Th>saved</Th>
          <Th>
            <span className="sr-only">download</span>
          </Th>
        </>
      }
    >
      {newestFirst.map((checkpoint) => (
        <tr key={checkpoint.id} className={rowClass}>
          <Td className="w-20 text-right font-medium">{count(checkpoint.step)}</Td>
          <Td>{KINDS[checkpoint.kind]}</Td>
          <Td>
            <Verified valid={checkpoint.valid} />
          </Td>
          <Td className="text-right">{checkpoint.attempt}</Td>
          <Td className="text-right">
            <Bytes value={checkpoint.bytes} />
          </Td>
          <Td>
            <Time at={checkpoint.created} />
          </Td>
          <Td className="text-right">
            <a
              href={archiveUrl(team, run, checkpoint.id)}
              download
              className="inline-flex items-center gap-1.5 text-accent hover:underline"
            >
              <Download aria-hidden size={14} />
              Download .tar
              <span className="sr-only">
                {" "}
                of step {count(checkpoint.step)}, {KINDS[checkpoint.kind]}
              </span>
            </a>
          </Td>
        </tr>
      ))}
    </Table>
  );
}

function Verified({ valid }: { valid: boolean }) {
  return (
    <span className={`inline-flex items-center gap-1.5 ${valid ? "text-good" : "text-bad"}`}>
      <StateIcon shape={valid ? "tick" : "cross"} />
      {valid ? "verified" : "damaged"}
    </span>
  );
}
