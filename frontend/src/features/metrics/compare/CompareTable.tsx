import { Link } from "@tanstack/react-router";
import { X } from "lucide-react";
import type { Run } from "@/api/types";
import { LineSwatch } from "@/components/charts/LineSwatch";
import { StatePill } from "@/components/StatePill";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { lineStyle, type ChangeView, type CompareView } from "@/features/metrics/compare/compareView";
import { count, decimal, percent, rate } from "@/lib/format";
import { uniqueNames } from "@/lib/uniqueNames";

interface Props {
  team: string;
  runs: ReadonlyMap<string, Run>;
  view: CompareView;
  onChange: ChangeView;
}

const RECENT_MEAN = "A mean of recent steps";

/** The runs of a comparison: line style, visibility and current metrics. */
export function CompareTable({ team, runs, view, onChange }: Props) {
  const known = view.runs.flatMap((id, index) => {
    const run = runs.get(id);
    return run === undefined ? [] : [{ run, index }];
  });
  const names = uniqueNames(known.map(({ run }) => run));
  return (
    <div className="mb-4 max-h-[40vh] overflow-y-auto">
      <Table
        label="Compared runs"
        head={
          <>
            <Th className="w-16">line</Th>
            <Th>name</Th>
            <Th className="w-32 max-tablet:hidden">state</Th>
            <Th className="text-right max-tablet:hidden">step</Th>
            <Th className="text-right">loss</Th>
            <Th className="text-right">validation</Th>
            <Th className="text-right max-tablet:hidden" title={RECENT_MEAN}>
              recent MFU
            </Th>
            <Th className="text-right max-tablet:hidden" title={RECENT_MEAN}>
              recent tokens/s
            </Th>
            <Th>
              <span className="sr-only">remove</span>
            </Th>
          </>
        }
      >
        {known.map(({ run, index }) => {
          const name = names.get(run.id) ?? run.name;
          return (
            <tr key={run.id} className={rowClass}>
              <Td>
                <label className="flex items-center gap-2 max-tablet:min-h-11">
                  <input
                    type="checkbox"
                    aria-label={`Show ${name}`}
                    checked={!view.hidden.has(run.id)}
                    onChange={() => {
                      toggle(run.id);
                    }}
                  />
                  <LineSwatch {...lineStyle(index, view.runs.length)} />
                </label>
              </Td>
              <Td className="max-w-72 max-tablet:max-w-32">
                <Link
                  to="/$team/runs/$runId/$tab"
                  params={{ team, runId: run.id, tab: "overview" }}
                  className="block truncate font-medium hover:text-accent"
                  title={name}
                >
                  {name}
                </Link>
              </Td>
              <Td className="max-tablet:hidden">
                <StatePill state={run.state} suspectSeconds={run.suspect_seconds} />
              </Td>
              <Td className="text-right max-tablet:hidden">{count(run.summary.step)}</Td>
              <Td className="text-right">{metricText(run, "loss", decimal)}</Td>
              <Td className="text-right">{metricText(run, "validation_loss", decimal)}</Td>
              <Td className="text-right max-tablet:hidden">{metricText(run, "mfu", (value) => `${percent(value)} %`)}</Td>
              <Td className="text-right max-tablet:hidden">{metricText(run, "tokens_per_second", rate)}</Td>
              <Td className="text-right">
                <button
                  type="button"
                  aria-label={`Remove ${name} from the comparison`}
                  title="Remove"
                  className="inline-grid size-6 place-items-center rounded-box text-soft hover:bg-raised hover:text-text max-tablet:size-11"
                  onClick={() => {
                    onChange(({ runs }) => ({ runs: runs.filter((id) => id !== run.id) }));
                  }}
                >
                  <X aria-hidden size={14} />
                </button>
              </Td>
            </tr>
          );
        })}
      </Table>
    </div>
  );

  function toggle(id: string): void {
    onChange((old) => {
      const hidden = new Set(old.hidden);
      if (!hidden.delete(id)) hidden.add(id);
      return { hidden };
    });
  }
}

function metricText({ summary: { values } }: Run, name: string, text: (value: number) => string): string {
  const value = values[name];
  return value === undefined ? "–" : text(value);
}
