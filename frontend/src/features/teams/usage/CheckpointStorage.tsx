import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { errorMessage } from "@/api/errors";
import { usageQuery } from "@/features/teams/queries";
import { bytes } from "@/lib/format";

interface Props {
  team: string;
  /** The period that the rest of the page uses, so that both share one request. */
  days: number;
}

/** Storage used by checkpoints, without a meter, because the limit of files does not include it. */
export function CheckpointStorage({ team, days }: Props) {
  const { data, error } = useQuery({ ...usageQuery(team, days), placeholderData: keepPreviousData });
  return (
    <p className="mt-2 min-h-5 text-soft">
      {data !== undefined && (
        <>
          Checkpoints and exports: <span className="text-text">{bytes(data.team_checkpoint_bytes)}</span>, in addition to the files. The limit above applies to uploaded files only; the limit of total
          storage applies to both.
        </>
      )}
      {data === undefined && error !== null && <>Checkpoint storage is unknown: {errorMessage(error)}</>}
    </p>
  );
}
