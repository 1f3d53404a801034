import type { Run } from "@/api/types";
import { EmptyState } from "@/components/EmptyState";
import { rowClass } from "@/components/Table";
import { specDifferences } from "@/features/runs/compare/specDiff";
import type { Json } from "@/features/runs/spec/specFields";
import { emptyText, formatValue, missingText } from "@/features/runs/spec/valueText";
import { fieldLabel, inSentence } from "@/lib/fieldLabel";
import { uniqueNames } from "@/lib/uniqueNames";

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
  const datasetNames = namesOf(runs, datasets);
  const runNames = uniqueNames(runs);
  const differences = specDifferences(runs.map(({ spec }) => spec as unknown as Record<string, Json>));
  return (
    <section className="mt-6">
      <h2 className="mb-2 font-medium">{differences.length === 0 ? "Configuration" : "Configuration differences"}</h2>
      {differences.length === 0 ? (
        <EmptyState title="These runs have the same configuration.">They also have the same seed, so differences between their curves come from the hardware.</EmptyState>
      ) : (
        <div className="panel w-max max-w-full overflow-x-auto" role="region" aria-label="Configuration differences" tabIndex={0}>
          <table className="border-collapse text-left">
            <thead>
              <tr className="h-8 border-b">
                <th scope="col" className="sticky left-0 bg-surface px-4 max-tablet:px-3 text-small font-medium text-soft">
                  field
                </th>
                {runs.map((run) => (
                  <th key={run.id} scope="col" className="max-w-48 truncate px-3 max-tablet:max-w-28 text-small font-medium" title={runNames.get(run.id)}>
                    {runNames.get(run.id)}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {differences.map(({ path, values }) => (
                <tr key={path} className={rowClass}>
                  <th scope="row" title={path} className="sticky left-0 h-8 bg-surface px-4 font-normal text-soft max-tablet:px-3 max-tablet:py-1 tablet:whitespace-nowrap">
                    {pathLabel(path)}
                  </th>
                  {values.map((value, index) => (
                    <td
                      key={runs[index]?.id ?? index}
                      className={`px-3 max-tablet:min-w-24 max-tablet:py-1 max-tablet:wrap-anywhere tablet:max-w-64 tablet:truncate ${hasBold && !isEqual(value, values[0]) ? "font-semibold" : ""}`}
                      title={valueText(runs[index], path, value, datasetNames)}
                    >
                      {valueText(runs[index], path, value, datasetNames)}
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

const DATASET_FIELDS: ReadonlySet<string> = new Set(["data.dataset", "data.tokenizer.source"]);

/** The names of the runs' datasets; those with the same name have the end of their id. */
function namesOf(runs: readonly Run[], datasets: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  const ids = new Set(runs.flatMap(({ spec: { data } }) => [data.dataset, data.tokenizer.source ?? ""]));
  return uniqueNames([...ids].map((id) => ({ id, name: datasets.get(id) ?? id })));
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
  if (run === undefined) return "–";
  if (value === undefined) return missingText(path);
  if (value === null) return emptyText(run.spec, path);
  return (DATASET_FIELDS.has(path) && typeof value === "string" ? datasets.get(value) : undefined) ?? formatValue(value).replace(/ *\n */g, " · ");
}
