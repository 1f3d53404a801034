import { useMutation } from "@tanstack/react-query";
import type { CurationSpec, CurationCounts } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { countCuration } from "@/features/datasets/queries";
import { dropReason } from "@/features/datasets/curation/curation";
import { count, plural, share, short } from "@/lib/format";

interface Props {
  team: string;
  /** The dataset whose files are curated; null for a mixture. */
  dataset: string | null;
  version: number | null;
  curation: CurationSpec;
  disabled: boolean;
  /** Names of datasets by id. */
  names: ReadonlyMap<string, string>;
}

/** Counts what a curation would keep before it is applied. */
export function CountPanel({ team, dataset, version, curation, disabled, names }: Props) {
  const countMutation = useMutation({ mutationFn: (curation: CurationSpec) => countCuration(team, dataset, version, curation) });
  const stale = JSON.stringify(countMutation.variables) !== JSON.stringify(curation);
  return (
    <div className="flex flex-col items-start gap-3">
      <Button
        disabled={disabled || countMutation.isPending}
        onClick={() => {
          countMutation.mutate(curation);
        }}
      >
        {countMutation.isPending ? "Counting" : "Count"}
      </Button>
      {countMutation.error !== null && !stale && <ErrorNote error={countMutation.error} />}
      <div role="status">
        {countMutation.data !== undefined && (
          <div>
            {stale && <p className="text-small text-soft">Result before your last change:</p>}
            <Counts counts={countMutation.data} names={names} />
          </div>
        )}
      </div>
    </div>
  );
}

function Counts({ counts, names }: { counts: CurationCounts; names: Props["names"] }) {
  const { documents, kept, characters, dropped, duplicates, mix, counted_fraction: counted } = counts;
  const droppedCounts = Object.entries(dropped).filter(([, number]) => number > 0);
  return (
    <>
      <p>
        This keeps {count(kept)} of {plural(documents, "document")} ({kept === 0 ? "0 %" : share(kept / documents)}), {short(characters)} characters.
      </p>
      {kept === 0 && documents > 0 && <p className="text-warn">No documents would remain. Relax or clear a filter.</p>}
      {droppedCounts.length > 0 && (
        <p className="text-soft">Dropped: {droppedCounts.map(([part, number]) => `${count(number)} ${dropReason(part)}`).join(", ")}.</p>
      )}
      {!droppedCounts.some(([part]) => dropReason(part) === "duplicate") && duplicates > 0 && (
        <p className="text-soft">{plural(duplicates, "exact duplicate")} would be kept.</p>
      )}
      {mix.map((one) => (
        <p key={`${one.dataset} ${one.version}`} className="text-soft">
          {names.get(one.dataset) ?? one.dataset}, version {one.version}: {plural(one.documents, "document")}, {short(one.characters)}{" "}
          characters, {share(one.share)} of the mixture.
        </p>
      ))}
      {counted < 1 && (
        <p className="text-soft">Estimated from {share(counted)} of the documents; the version itself counts all of them.</p>
      )}
    </>
  );
}
