import type { Run } from "@/api/types";
import { EmptyState } from "@/components/EmptyState";
import { rowClass } from "@/components/Table";
import { automaticValue } from "@/lib/automatic";
import { count } from "@/lib/format";
import { specDifferences } from "@/lib/specDiff";
import { label, type Json } from "@/lib/specForm";

/** What was asked differently of several runs: only the fields that differ, a column a run. */
export function SpecDifferences({ runs }: { runs: readonly Run[] }) {
  if (runs.length < 2) return null;
  const differences = specDifferences(runs.map(({ spec }) => spec as unknown as Record<string, Json>));
  return (
    <section className="mt-6">
      <h2 className="mb-2 font-medium">Configurations: {differences.length === 0 ? "no difference" : "what differs"}</h2>
      {differences.length === 0 ? (
        <EmptyState title="These runs were asked for the same.">They differ in name only; their curves show chance and machines.</EmptyState>
      ) : (
        <div className="panel w-max max-w-full overflow-x-auto" role="region" aria-label="Differences of configurations" tabIndex={0}>
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
                    {nameOf(path)}
                  </th>
                  {values.map((value, index) => (
                    <td
                      key={runs[index]?.id ?? index}
                      className={`max-w-64 truncate px-3 ${isOf(value, values[0]) ? "" : "font-semibold"}`}
                      title={told(runs[index], path, value)}
                    >
                      {told(runs[index], path, value)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {differences.length > 0 && <p className="mt-2 text-small text-soft">Bold is what differs from the first run.</p>}
    </section>
  );
}

/** `optimizer · learning rate` */
function nameOf(path: string): string {
  return path
    .split(".")
    .map((part) => label(part).toLowerCase())
    .join(" · ");
}

function isOf(value: Json | undefined, first: Json | undefined): boolean {
  return JSON.stringify(value) === JSON.stringify(first);
}

function told(run: Run | undefined, path: string, value: Json | undefined): string {
  if (value === undefined || run === undefined) return "–";
  if (value === null) {
    const automatic = automaticValue(run.spec, path);
    return automatic === undefined ? "automatic" : `${count(automatic)} (automatic)`;
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number" && Number.isInteger(value) && Math.abs(value) >= 1_000) return count(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}
