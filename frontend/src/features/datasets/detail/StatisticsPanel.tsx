import type { ReactNode } from "react";
import type { Preparation, Statistics } from "@/api/types";
import { DatasetName } from "@/features/datasets/detail/DatasetName";
import { LengthHistogram } from "@/features/datasets/detail/LengthHistogram";
import { dropReason } from "@/features/datasets/curation/curation";
import { count, plural, share, short } from "@/lib/format";

interface Props {
  team: string;
  statistics: Statistics;
  preparations: readonly Preparation[];
}

/** The effect of a version's curation on its documents. */
export function StatisticsPanel({ team, statistics, preparations }: Props) {
  const { documents, kept, characters, duplicates, dropped, rejected, mix } = statistics;
  const ready = preparations.find(({ state, lengths }) => state === "ready" && lengths.length > 0);
  const droppedCounts = Object.entries(dropped).filter(([, number]) => number > 0);
  return (
    <div className="grid grid-cols-2 gap-x-10 gap-y-4 px-4 py-3 max-desk:grid-cols-1">
      <div>
        <dl className="grid grid-cols-[auto_1fr] gap-x-6 gap-y-1">
          <Figure name="documents">{count(documents)}</Figure>
          <Figure name="kept">
            {count(kept)} {documents > 0 && kept < documents && <Secondary>{share(kept / documents)}</Secondary>}
          </Figure>
          {droppedCounts.map(([part, number]) => (
            <Figure key={part} name={`dropped: ${dropReason(part)}`}>
              {count(number)} <Secondary>{share(number / Math.max(1, documents))}</Secondary>
            </Figure>
          ))}
          {!droppedCounts.some(([part]) => dropReason(part) === "duplicate") && (
            <Figure name="exact duplicates">
              {count(duplicates)} {duplicates > 0 && <Secondary>kept</Secondary>}
            </Figure>
          )}
          <Figure name="could not be read">{count(rejected)}</Figure>
          <Figure name="characters kept">{short(characters)}</Figure>
        </dl>
        {mix.length > 0 && (
          <ul aria-label="Mixed from" className="mt-3 flex flex-col gap-1 border-t pt-2">
            {mix.map((one) => (
              <li key={`${one.dataset} ${one.version}`} className="flex flex-wrap gap-x-3">
                <DatasetName team={team} datasetId={one.dataset} />
                <span className="text-soft">
                  version {one.version}: {plural(one.documents, "document")}, {share(one.share)} of the characters
                </span>
              </li>
            ))}
          </ul>
        )}
      </div>
      <LengthHistogram characters={statistics.lengths} tokens={ready?.lengths ?? []} />
    </div>
  );
}

function Figure({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt className="text-soft">{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Secondary({ children }: { children: ReactNode }) {
  return <span className="text-small text-soft">{children}</span>;
}
