import { useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import type { Run } from "@/api/types";
import { Button } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { ForEditors } from "@/components/ForEditors";
import { layoutNote, currentAndNext, attemptSpec } from "@/features/runs/layout/attemptLayout";
import { ChangeLayout } from "@/features/runs/layout/ChangeLayout";
import { canChangeLayout } from "@/features/runs/layout/layout";
import { runQuery } from "@/features/runs/queries";
import { automaticValue } from "@/features/runs/spec/automaticValues";
import { count } from "@/lib/format";
import type { Json } from "@/features/runs/spec/specFields";
import { fieldLabel } from "@/lib/fieldLabel";

interface Props {
  team: string;
  run: Run;
  /** The dataset's name. */
  dataset: ReactNode;
}

interface Entry {
  path: string;
  name: string;
  value: Json;
}

/** A run's stored configuration, and the values chosen for empty fields. */
export function ConfigurationTab({ team, run, dataset }: Props) {
  const queries = useQueryClient();
  const [changing, setChanging] = useState(false);
  const spec = run.spec as unknown as Record<string, Json>;
  const general = Object.entries(spec).filter(([, value]) => !isSection(value));
  const sections = Object.entries(spec).filter(([, value]) => isSection(value));
  const entries = sections.map(([key, value]) => [key, entriesOf(value, key)] as const);
  const currentSpec = attemptSpec(run);
  const layoutDiffers = entries.flatMap(([, those]) => those).some(({ path }) => valueText(currentSpec, path) !== valueText(run.spec, path));
  return (
    <div className="flex flex-col gap-3">
      <div className="flex flex-wrap gap-2">
        <CopyButton label="Copy as JSON" text={JSON.stringify(spec, null, 2)} />
        {canChangeLayout(run) && (
          <ForEditors>
            <Button
              onClick={() => {
                setChanging(true);
              }}
            >
              Change layout
            </Button>
          </ForEditors>
        )}
      </div>
      {changing && (
        <ChangeLayout
          team={team}
          run={run}
          onChanged={(answer) => {
            queries.setQueryData(runQuery(team, run.id).queryKey, answer);
          }}
          onClose={() => {
            setChanging(false);
          }}
        />
      )}
      {layoutDiffers && (
        <p role="note" className="panel px-4 py-2">
          {layoutNote(run)}
        </p>
      )}
      <div className="columns-3 gap-3 max-desk:columns-2 max-tablet:columns-1">
        <Section title="Run" entries={general.map(([key, value]) => ({ path: key, name: key, value }))} renderValue={renderValue} />
        {entries.map(([key, those]) => (
          <Section key={key} title={fieldLabel(key)} entries={those} renderValue={renderValue} />
        ))}
      </div>
    </div>
  );

  function renderValue({ path }: Entry): ReactNode {
    if (path === "data.dataset") return dataset;
    const [now, next] = [valueText(currentSpec, path), valueText(run.spec, path)];
    return now === next ? next : currentAndNext(run, now, next);
  }
}

function Section({ title, entries, renderValue }: { title: string; entries: Entry[]; renderValue: (entry: Entry) => ReactNode }) {
  return (
    <section className="panel mb-3 min-w-0 break-inside-avoid">
      <h2 className="border-b px-4 py-2 font-medium">{title}</h2>
      <dl className="px-4 py-2">
        {entries.map((entry) => (
          <div key={entry.path} className="flex justify-between gap-4 py-0.5">
            <dt className="text-soft">{fieldLabel(entry.name).toLowerCase()}</dt>
            <dd
              className={`min-w-0 text-right break-words ${typeof entry.value === "string" ? "[font-variant-numeric:normal]" : ""} ${entry.value === null ? "text-soft" : ""}`}
            >
              {renderValue(entry)}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function isSection(value: Json): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The fields of a section; nested ones are named with their section: `tokenizer vocabulary`. */
function entriesOf(section: Json, path: string, prefix = ""): Entry[] {
  if (!isSection(section)) return [];
  return Object.entries(section).flatMap(([key, value]): Entry[] => {
    const entry = { path: `${path}.${key}`, name: `${prefix}${key}`, value };
    return isSection(value) ? entriesOf(value, entry.path, `${key} `) : [entry];
  });
}

/** For fields in which empty has a meaning of its own. */
const EMPTY_TEXT: Record<string, string> = {
  "resources.max_attempts": "no limit",
  "optimizer.clip_norm": "off",
  "schedule.decay_steps": "the entire schedule",
  "precision.fp8": "off",
};

/** The value of a field, or what its empty value means. */
function valueText(spec: Run["spec"], path: string): string {
  const value = path.split(".").reduce<Json>((at, key) => (isSection(at) ? (at[key] ?? null) : null), spec as unknown as Json);
  return value === null ? emptyText(spec, path) : formatValue(value);
}

function emptyText(spec: Run["spec"], path: string): string {
  const value = automaticValue(spec, path);
  return value === undefined ? (EMPTY_TEXT[path] ?? "automatic") : `${count(value)} (automatic)`;
}

function formatValue(value: Json): string {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number" && Number.isInteger(value) && Math.abs(value) >= 1_000) return count(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}
