import { useState } from "react";
import type { HistogramBin } from "@/api/types";
import { Segmented } from "@/components/Segmented";
import { count, plural } from "@/lib/format";

interface Props {
  characters: readonly HistogramBin[];
  /** Available once a preparation is ready. */
  tokens: readonly HistogramBin[];
}

type Unit = "characters" | "tokens";

const BAR_WIDTH = 10;
const MIN_HEIGHT = 1.5;

/** A histogram of document lengths with a summary, also as a table. Of lengths that are all alike only the summary. */
export function LengthHistogram({ characters, tokens }: Props) {
  const [chosen, setChosen] = useState<Unit>("characters");
  const [asTable, setAsTable] = useState(false);
  const unit = tokens.length === 0 ? "characters" : chosen;
  const bins = unit === "tokens" ? tokens : characters;
  if (bins.length === 0) return null;
  return (
    <figure className="min-w-0">
      <div className="flex min-h-8 flex-wrap items-center gap-x-3">
        <h3 className="font-medium">Length</h3>
        {tokens.length > 0 && <Segmented label="Length in" value={unit} options={["characters", "tokens"]} onChange={setChosen} />}
        {bins.length > 1 && (
          <button
            type="button"
            aria-pressed={asTable}
            aria-label="Length as a table"
            className="ml-auto rounded-box px-1 text-small text-soft hover:text-accent max-tablet:min-h-11"
            onClick={() => {
              setAsTable(!asTable);
            }}
          >
            {asTable ? "chart" : "table"}
          </button>
        )}
      </div>
      {bins.length > 1 && (asTable ? <BinTable bins={bins} unit={unit} /> : <Bars bins={bins} unit={unit} />)}
      <figcaption className="mt-1 text-small text-soft tabular-nums">{caption(bins, unit)}</figcaption>
    </figure>
  );
}

function Bars({ bins, unit }: { bins: readonly HistogramBin[]; unit: Unit }) {
  const most = Math.max(...bins.map(({ documents }) => documents), 1);
  const last = bins.length - 1;
  const labelled = last > 3 ? [0, Math.floor(last / 2), last] : [0, last];
  return (
    // The labels of the first and the last bar are wider than these.
    <div className="px-8">
      <svg
        aria-hidden
        viewBox={`0 0 ${bins.length * BAR_WIDTH} 100`}
        preserveAspectRatio="none"
        className="h-28 w-full border-b border-control"
      >
        {bins.map(({ upto, documents }, index) => {
          const height = documents === 0 ? 0 : Math.max(MIN_HEIGHT, (documents / most) * 100);
          return (
            <rect
              key={upto}
              x={index * BAR_WIDTH + 0.5}
              y={100 - height}
              width={BAR_WIDTH - 1}
              height={height}
              fill="var(--color-series-1)"
            >
              <title>{`up to ${count(upto)} ${unit}: ${plural(documents, "document")}`}</title>
            </rect>
          );
        })}
      </svg>
      <div aria-hidden className="relative mt-1 h-4 text-small text-soft">
        {labelled.map((index) => (
          <span key={index} className="absolute -translate-x-1/2 whitespace-nowrap" style={{ left: `${((index + 0.5) / bins.length) * 100}%` }}>
            ≤ {count(bins[index]?.upto ?? 0)}
          </span>
        ))}
      </div>
    </div>
  );
}

function BinTable({ bins, unit }: { bins: readonly HistogramBin[]; unit: Unit }) {
  return (
    <div role="region" aria-label="Length, table" tabIndex={0} className="h-36 overflow-auto">
      <table className="w-full text-small">
        <thead className="sticky top-0 bg-surface text-soft">
          <tr>
            <th scope="col" className="px-2 py-1 text-right font-medium">
              up to, {unit}
            </th>
            <th scope="col" className="px-2 py-1 text-right font-medium">
              documents
            </th>
          </tr>
        </thead>
        <tbody>
          {bins.map(({ upto, documents }) => (
            <tr key={upto} className="border-t">
              <td className="px-2 py-0.5 text-right text-soft">{count(upto)}</td>
              <td className="px-2 py-0.5 text-right">{count(documents)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The median and the longest document, for comparison with all other lengths. */
function caption(bins: readonly HistogramBin[], unit: Unit): string {
  const all = bins.reduce((sum, { documents }) => sum + documents, 0);
  let before = 0;
  const half = bins.find(({ documents }) => {
    before += documents;
    return before * 2 >= all;
  });
  const last = bins.findLastIndex(({ documents }) => documents > 0);
  const longest = bins[last];
  if (half === undefined || longest === undefined) return "No documents.";
  if (half.upto === longest.upto) return `${whose(longest.documents, all)} ${range(longest, bins[last - 1])} ${unit}.`;
  return `Half of the ${plural(all, "document")} have up to ${count(half.upto)} ${unit}. The longest has ${range(longest, bins[last - 1])}.`;
}

/** Which documents the lengths of the last bin belong to, if the median is in it. */
function whose(inLastBin: number, all: number): string {
  if (all === 1) return "The document has";
  return inLastBin === all ? `All ${plural(all, "document")} have` : `At least half of the ${plural(all, "document")}, and the longest, have`;
}

/** The lengths of a bin. The edges are powers of two, so those of the first bin are known too. */
function range({ upto }: HistogramBin, before: HistogramBin | undefined): string {
  const below = before?.upto ?? (upto === 1 ? -1 : upto / 2);
  return `between ${count(below + 1)} and ${count(upto)}`;
}
