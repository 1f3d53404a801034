import { useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import type { Run } from "@/api/types";
import { Button } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { ForEditors } from "@/components/ForEditors";
import { layoutNote, nowAndNext, specOfAttempt } from "@/features/runs/attemptLayout";
import { ChangeLayout } from "@/features/runs/ChangeLayout";
import { canBeLaidOut } from "@/features/runs/layout";
import { runQuery } from "@/features/runs/queries";
import { automaticValue } from "@/lib/automatic";
import { count } from "@/lib/format";
import { label, type Json } from "@/lib/specForm";

interface Props {
  team: string;
  run: Run;
  /** The dataset as people know it. */
  dataset: ReactNode;
}

interface Entry {
  path: string;
  name: string;
  value: Json;
}

/** Everything that was asked of a run, as it was stored, and what the fields left empty became. */
export function ConfigurationTab({ team, run, dataset }: Props) {
  const queries = useQueryClient();
  const [changing, setChanging] = useState(false);
  const spec = run.spec as unknown as Record<string, Json>;
  const general = Object.entries(spec).filter(([, value]) => !isSection(value));
  const sections = Object.entries(spec).filter(([, value]) => isSection(value));
  const entries = sections.map(([key, value]) => [key, entriesOf(value, key)] as const);
  const ofAttempt = specOfAttempt(run);
  const differs = entries.flatMap(([, those]) => those).some(({ path }) => words(ofAttempt, path) !== words(run.spec, path));
  return (
    <div className="flex flex-col gap-3">
      <div className="flex flex-wrap gap-2">
        <CopyButton words="Copy as JSON" text={JSON.stringify(spec, null, 2)} />
        {canBeLaidOut(run) && (
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
      {differs && (
        <p role="note" className="panel px-4 py-2">
          {layoutNote(run)}
        </p>
      )}
      <div className="columns-3 gap-3 max-desk:columns-2 max-tablet:columns-1">
        <Section title="Run" entries={general.map(([key, value]) => ({ path: key, name: key, value }))} show={show} />
        {entries.map(([key, those]) => (
          <Section key={key} title={label(key)} entries={those} show={show} />
        ))}
      </div>
    </div>
  );

  function show({ path }: Entry): ReactNode {
    if (path === "data.dataset") return dataset;
    const [now, next] = [words(ofAttempt, path), words(run.spec, path)];
    return now === next ? next : nowAndNext(run, now, next);
  }
}

function Section({ title, entries, show }: { title: string; entries: Entry[]; show: (entry: Entry) => ReactNode }) {
  return (
    <section className="panel mb-3 min-w-0 break-inside-avoid">
      <h2 className="border-b px-4 py-2 font-medium">{title}</h2>
      <dl className="px-4 py-2">
        {entries.map((entry) => (
          <div key={entry.path} className="flex justify-between gap-4 py-0.5">
            <dt className="text-soft">{label(entry.name).toLowerCase()}</dt>
            <dd
              className={`min-w-0 text-right break-words ${typeof entry.value === "string" ? "[font-variant-numeric:normal]" : ""} ${entry.value === null ? "text-soft" : ""}`}
            >
              {show(entry)}
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

/** The fields of a section; one within another is named with it: `tokenizer vocabulary`. */
function entriesOf(section: Json, path: string, prefix = ""): Entry[] {
  if (!isSection(section)) return [];
  return Object.entries(section).flatMap(([key, value]): Entry[] => {
    const entry = { path: `${path}.${key}`, name: `${prefix}${key}`, value };
    return isSection(value) ? entriesOf(value, entry.path, `${key} `) : [entry];
  });
}

/** For the fields whose emptiness is a choice of its own. */
const EMPTY: Record<string, string> = {
  "resources.max_attempts": "no limit",
  "optimizer.clip_norm": "off",
  "schedule.decay_steps": "the whole course",
  "precision.fp8": "off",
};

/** The value of a field, or what it was left empty for. */
function words(spec: Run["spec"], path: string): string {
  const value = path.split(".").reduce<Json>((at, key) => (isSection(at) ? (at[key] ?? null) : null), spec as unknown as Json);
  return value === null ? empty(spec, path) : told(value);
}

function empty(spec: Run["spec"], path: string): string {
  const value = automaticValue(spec, path);
  return value === undefined ? (EMPTY[path] ?? "automatic") : `${count(value)} (automatic)`;
}

function told(value: Json): string {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number" && Number.isInteger(value) && Math.abs(value) >= 1_000) return count(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}
