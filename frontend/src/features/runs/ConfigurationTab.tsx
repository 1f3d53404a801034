import type { Run } from "@/api/types";
import { CopyButton } from "@/components/CopyButton";
import { label, type Json } from "@/lib/specForm";

/** Everything that was asked of a run, as it was stored. */
export function ConfigurationTab({ run }: { run: Run }) {
  const spec = run.spec as unknown as Record<string, Json>;
  const general = Object.entries(spec).filter(([, value]) => !isSection(value));
  const sections = Object.entries(spec).filter(([, value]) => isSection(value));
  return (
    <div className="flex flex-col gap-3">
      <div>
        <CopyButton words="Copy as JSON" text={JSON.stringify(spec, null, 2)} />
      </div>
      <div className="columns-3 gap-3 max-desk:columns-2 max-tablet:columns-1">
        <Section title="Run" entries={general} />
        {sections.map(([key, value]) => (
          <Section key={key} title={label(key)} entries={flat(value)} />
        ))}
      </div>
    </div>
  );
}

function Section({ title, entries }: { title: string; entries: [string, Json][] }) {
  return (
    <section className="panel mb-3 min-w-0 break-inside-avoid">
      <h2 className="border-b px-4 py-2 font-medium">{title}</h2>
      <dl className="px-4 py-2">
        {entries.map(([key, value]) => (
          <div key={key} className="flex justify-between gap-4 py-0.5">
            <dt className="text-soft">{label(key).toLowerCase()}</dt>
            <dd
              className={`min-w-0 text-right break-words ${typeof value === "string" ? "[font-variant-numeric:normal]" : ""} ${value === null ? "text-soft" : ""}`}
            >
              {told(value)}
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

function flat(value: Json): [string, Json][] {
  if (!isSection(value)) return [];
  return Object.entries(value).flatMap(([key, inner]): [string, Json][] =>
    isSection(inner) ? flat(inner).map(([name, leaf]): [string, Json] => [`${key} ${name}`, leaf]) : [[key, inner]],
  );
}

function told(value: Json): string {
  if (value === null) return "automatic";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number" && Number.isInteger(value) && Math.abs(value) >= 1_000) return value.toLocaleString("en-US");
  return typeof value === "string" ? value : JSON.stringify(value);
}
