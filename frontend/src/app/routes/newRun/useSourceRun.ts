import { useSuspenseQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import type { Run } from "@/api/types";
import { runQuery, specQuery } from "@/features/runs/queries";
import { sectionsOf, valuesOf, type JsonSchema, type SpecValues } from "@/features/runs/spec/specFields";

/** Another run's configuration as form values, without its name. */
export function useSourceRun(runId: string): { run: Run; values: SpecValues } {
  const { team } = useParams({ from: "/$team" });
  const { data: run } = useSuspenseQuery({ ...runQuery(team, runId), refetchInterval: false });
  const { data: info } = useSuspenseQuery(specQuery);
  const fields = sectionsOf(info.run_spec as JsonSchema).flatMap((section) => section.fields);
  const values = Object.entries(valuesOf(run.spec, fields).values).filter(([path]) => path !== "name");
  return { run, values: Object.fromEntries(values) };
}
