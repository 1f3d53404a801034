import { useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useMemo, useState, type ReactNode } from "react";
import type { Run } from "@/api/types";
import { Button } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { ForEditors } from "@/components/ForEditors";
import { Skeleton } from "@/components/Skeleton";
import { layoutNote, currentAndNext, attemptSpec } from "@/features/runs/parallelism/attemptLayout";
import { ChangeLayout } from "@/features/runs/parallelism/ChangeLayout";
import { canChangeLayout } from "@/features/runs/parallelism/layout";
import { groupsOf, isSection, splitByDefault, type Entry, type Group } from "@/features/runs/detail/configurationGroups";
import { withQuotes } from "@/features/runs/detail/visibleSpaces";
import { specQuery, storeRun } from "@/features/runs/queries";
import { emptyText, formatValue } from "@/features/runs/spec/valueText";
import { sectionsOf, type Json, type JsonSchema } from "@/features/runs/spec/specFields";
import { fieldLabel, inSentence } from "@/lib/fieldLabel";

interface Props {
  team: string;
  run: Run;
  /** The dataset's name. */
  dataset: ReactNode;
}

/** Loaded when it is opened: it needs the YAML library. */
const YamlDialog = lazy(async () => ({ default: (await import("@/features/runs/detail/YamlDialog")).YamlDialog }));

/** A run's stored configuration: first the chosen values, then the defaults. */
export function ConfigurationTab({ team, run, dataset }: Props) {
  const queries = useQueryClient();
  const [changing, setChanging] = useState(false);
  const [asYaml, setAsYaml] = useState(false);
  const spec = run.spec as unknown as Record<string, Json>;
  const { data: info, isLoading } = useQuery(specQuery);
  const fields = useMemo(() => (info === undefined ? null : sectionsOf(info.run_spec as JsonSchema).flatMap((section) => section.fields)), [info]);
  const groups = groupsOf(spec);
  const [chosen, defaults] = splitByDefault(groups, fields);
  const currentSpec = attemptSpec(run);
  const layoutDiffers = groups.flatMap(({ entries }) => entries).some(({ path }) => valueText(currentSpec, path) !== valueText(run.spec, path));
  return (
    <div className="flex flex-col gap-3">
      <div className="flex flex-wrap gap-2">
        <Button
          onClick={() => {
            setAsYaml(true);
          }}
        >
          View as YAML
        </Button>
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
      {asYaml && (
        <Suspense>
          <YamlDialog
            spec={spec}
            onClose={() => {
              setAsYaml(false);
            }}
          />
        </Suspense>
      )}
      {changing && (
        <ChangeLayout
          team={team}
          run={run}
          onChanged={(changed) => void storeRun(queries, team, changed)}
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
      {isLoading ? <Skeleton rows={12} /> : values()}
    </div>
  );

  /** In one list if the API does not describe the fields. */
  function values(): ReactNode {
    return (
      <>
        <h2 className="font-semibold">
          {defaults.length > 0 ? "Chosen" : "All values"} <span className="text-small font-normal text-soft">{defaults.length > 0 && "by you, or for you when the run was submitted"}</span>
        </h2>
        <Groups groups={chosen} renderValue={renderValue} />
        {defaults.length > 0 && (
          <>
            <h2 className="mt-3 font-semibold">
              Defaults <span className="text-small font-normal text-soft">not changed</span>
            </h2>
            <Groups groups={defaults} renderValue={renderValue} isSoft />
          </>
        )}
      </>
    );
  }

  function renderValue({ path }: Entry): ReactNode {
    if (path === "data.dataset") return dataset;
    const [now, next] = [valueText(currentSpec, path), valueText(run.spec, path)];
    return now === next ? next : currentAndNext(run, now, next);
  }
}

interface GroupsProps {
  groups: readonly Group[];
  renderValue: (entry: Entry) => ReactNode;
  isSoft?: boolean;
}

function Groups({ groups, renderValue, isSoft = false }: GroupsProps) {
  return (
    <div className={`columns-3 gap-3 max-desk:columns-2 max-tablet:columns-1 ${isSoft ? "text-soft" : ""}`}>
      {groups.map(({ key, entries }) => (
        <Section key={key} title={key === "" ? "Run" : fieldLabel(key)} entries={entries} renderValue={renderValue} />
      ))}
    </div>
  );
}

function Section({ title, entries, renderValue }: { title: string; entries: readonly Entry[]; renderValue: (entry: Entry) => ReactNode }) {
  return (
    <section className="panel mb-3 min-w-0 break-inside-avoid">
      <h3 className="border-b px-4 py-2 font-medium">{title}</h3>
      <dl className="grid grid-cols-[minmax(0,min(13rem,60%))_minmax(0,1fr)] gap-x-4 gap-y-1 px-4 py-2">
        {entries.map((entry) => (
          <div key={entry.path} className="contents">
            <dt className="text-soft">{inSentence(fieldLabel(entry.name, entry.path))}</dt>
            <dd
              className={`min-w-0 [font-variant-numeric:normal] break-words whitespace-pre-wrap ${entry.value === null ? "text-soft" : ""}`}
            >
              {renderValue(entry)}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

/** The value of a field, or what its empty value means. */
function valueText(spec: Run["spec"], path: string): string {
  const value = path.split(".").reduce<Json>((at, key) => (isSection(at) ? (at[key] ?? null) : null), spec as unknown as Json);
  return value === null ? emptyText(spec, path) : formatValue(withQuotes(value));
}
