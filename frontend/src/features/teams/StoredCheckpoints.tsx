import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { sentenceOf } from "@/api/errors";
import { usageQuery } from "@/features/teams/queries";
import { bytes } from "@/lib/format";

interface Props {
  team: string;
  /** Which usage is looked at elsewhere on the page, so that one answer does for both. */
  days: number;
}

/** What checkpoints occupy: no meter, for no limit holds for them. */
export function StoredCheckpoints({ team, days }: Props) {
  const { data, error } = useQuery({ ...usageQuery(team, days), placeholderData: keepPreviousData });
  return (
    <p className="mt-2 min-h-5 text-soft">
      {data !== undefined && (
        <>
          Checkpoints and exports: <span className="text-text">{bytes(data.team_checkpoint_bytes)}</span>, beside the files. The limit is for uploaded files; only the
          disk bounds these.
        </>
      )}
      {data === undefined && error !== null && <>What checkpoints occupy is not known: {sentenceOf(error)}</>}
    </p>
  );
}
