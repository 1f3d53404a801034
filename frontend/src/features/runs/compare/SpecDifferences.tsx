import type { Run } from "@/api/types";
import { EmptyState } from "@/components/EmptyState";
import { rowClass } from "@/components/Table";
import { specDifferences } from "@/features/runs/compare/specDiff";
import type { Json } from "@/features/runs/spec/specFields";
import { emptyText, formatValue } from "@/features/runs/spec/valueText";
import { fieldLabel, inSentence } from "@/lib/fieldLabel";

interface Props {
  runs: readonly Run[];
  /** Names of datasets by id. */
  datasets: ReadonlyMap<string, string>;
}

/** The fields in which several runs' configurations differ, one column per run. */
export function SpecDifferences({ runs, datasets }: Props) {
  if (runs.length < 2) return null;
  // Of two runs, every value shown differs.
  const hasBold = runs.length > 2;
  const differences = specDifferences(runs.map(({ spec }) => spec as unknown as Record<string, Json>));
  return (
    <section className="mt-6">
      <h2 className="mb-2 font-medium">{differences.length === 0 ? "Configuration" : "Configuration differences"}</h2>
      {differences.length === 0 ? (
        <EmptyState title="These runs have the same configuration.">Differences between their curves come from randomness and hardware.</EmptyState>
      ) : (
        <div className="panel w-max max-w-full overflow-x-auto" role="region" aria-label="Configuration differences" tabIndex={0}>
          <table className="border-collapse text-left">
            <thead>
              <tr className="h-8 border-b">
                <th scope="col" className="sticky left-0 bg-surface px-4 text-small font-medium text-soft">
                  field
                </th>
                {runs.map((run) => (
                  <th key={run.id} scope="col" className="max-w-48 truncate px-3 text-small font-medium" title={run.name}>
                    {run.name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {differences.map(({ path, values }) => (
                <tr key={path} className={rowClass}>
                  <th scope="row" title={path} className="sticky left-0 h-8 bg-surface px-4 font-normal whitespace-nowrap text-soft">
                    {pathLabel(path)}
                  </th>
                  {values.map((value, index) => (
                    <td
                      key={runs[index]?.id ?? index}
                      className={`max-w-64 truncate px-3 ${hasBold && !isEqual(value, values[0]) ? "font-semibold" : ""}`}
                      title={valueText(runs[index], path, value, datasets)}
                    >
                      {valueText(runs[index], path, value, datasets)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {differences.length > 0 && hasBold && <p className="mt-2 text-small text-soft">Values that differ from the first run are bold.</p>}
    </section>
  );
}

/** `optimizer · learning rate` */
function pathLabel(path: string): string {
  return path
    .split(".")
    .map((part) => inSentence(fieldLabel(part)))
    .join(" · ");
}

function isEqual(value: Json | undefined, first: Json | undefined): boolean {
  return JSON.stringify(value) === JSON.stringify(first);
}

function valueText(run: Run | undefined, path: string, value: Json | undefined, datasets: ReadonlyMap<string, string>): string {
  if (value === undefined || run === undefined) return "–";
  if (value === null) return emptyText(run.spec, path);
  const mayBeDataset = (path === "data.dataset" || path === "data.tokenizer.source") && typeof value === "string";
  return (mayBeDataset ? datasets.get(value) : undefined) ?? formatValue(value).replace(/ *\n */g, " · ");
}
