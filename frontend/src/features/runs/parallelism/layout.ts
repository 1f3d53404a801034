/** The layout of a run's next attempt over its ranks. */
import { api, body } from "@/api/client";
import type { Run, RunLayout } from "@/api/types";
import type { SpecJson } from "@/features/runs/queries";
import type { SpecField, SpecSection } from "@/features/runs/spec/specFields";

const MICRO_SEQUENCES = "batch.micro_sequences";
/** Not available yet, so the form does not show it. */
const CONTEXT = "parallelism.context";

const ENDING_STATES: ReadonlySet<Run["state"]> = new Set(["completing", "succeeded", "failed", "cancelled"]);
/** States in which an attempt is on a node. */
export const LIVE_STATES: ReadonlySet<Run["state"]> = new Set(["leased", "starting", "running", "stopping"]);

/** Whether the run may have another attempt, which a new layout could apply to. */
export function canChangeLayout({ state }: Run): boolean {
  return !ENDING_STATES.has(state);
}

/** When a new layout takes effect. */
export function effectText({ state }: Run): string {
  if (LIVE_STATES.has(state)) return "The current attempt keeps its layout. The next one, after a recovery or a pause, continues from the newest checkpoint in the new layout.";
  return "The run has no current attempt. Its next attempt uses the new layout.";
}

/** The fields of a layout, batch fields last. */
export function layoutFields(sections: readonly SpecSection[]): SpecField[] {
  const parallelism = sections.find(({ key }) => key === "parallelism")?.fields ?? [];
  const batch = sections.find(({ key }) => key === "batch")?.fields ?? [];
  return [...parallelism.filter(({ path }) => path !== CONTEXT), ...batch.filter(({ path }) => path === MICRO_SEQUENCES)];
}

/** The run's configuration with a layout from the form. */
export function withLayout({ spec }: Run, layoutFieldsSpec: SpecJson): SpecJson {
  return {
    ...spec,
    parallelism: layoutFieldsSpec["parallelism"] ?? {},
    batch: { ...spec.batch, ...(layoutFieldsSpec["batch"] as Partial<Run["spec"]["batch"]> | undefined) },
  };
}

export async function changeLayout(team: string, run: string, layoutFieldsSpec: SpecJson): Promise<Run> {
  const batch = layoutFieldsSpec["batch"] as Partial<Run["spec"]["batch"]> | undefined;
  const layout = { parallelism: layoutFieldsSpec["parallelism"] ?? {}, micro_sequences: batch?.micro_sequences ?? null } as RunLayout;
  return body(
    await api.PUT("/api/v1/teams/{team}/runs/{run}/layout", { params: { path: { team, run } }, body: layout }),
  );
}
