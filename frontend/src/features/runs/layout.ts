/** How a run's next attempt is cut over its ranks. */
import { api, body } from "@/api/client";
import type { Run, RunLayout } from "@/api/types";
import type { SpecJson } from "@/features/runs/queries";
import type { SpecField, SpecSection } from "@/lib/specForm";

const MICRO_SEQUENCES = "batch.micro_sequences";
/** Not built yet: the form does not ask for it. */
const CONTEXT = "parallelism.context";

const ENDING: ReadonlySet<Run["state"]> = new Set(["completing", "succeeded", "failed", "cancelled"]);
/** States in which an attempt is on a node. */
export const LIVE: ReadonlySet<Run["state"]> = new Set(["leased", "starting", "running", "stopping"]);

/** Whether an attempt is to come that another layout could be for. */
export function canBeLaidOut({ state }: Run): boolean {
  return !ENDING.has(state);
}

/** When another layout takes effect. */
export function takesEffect({ state }: Run): string {
  if (LIVE.has(state)) return "The attempt that runs now goes on as it is. The next one, after a recovery or a pause, goes on from the newest checkpoint in the new layout.";
  return "The run has no attempt now. It begins its next one in the new layout.";
}

/** The fields of a layout, those of the batch last. */
export function layoutFields(sections: readonly SpecSection[]): SpecField[] {
  const parallelism = sections.find(({ key }) => key === "parallelism")?.fields ?? [];
  const batch = sections.find(({ key }) => key === "batch")?.fields ?? [];
  return [...parallelism.filter(({ path }) => path !== CONTEXT), ...batch.filter(({ path }) => path === MICRO_SEQUENCES)];
}

/** The run's configuration with the layout that the fields say. */
export function withLayout({ spec }: Run, said: SpecJson): SpecJson {
  return {
    ...spec,
    parallelism: said["parallelism"] ?? {},
    batch: { ...spec.batch, ...(said["batch"] as Partial<Run["spec"]["batch"]> | undefined) },
  };
}

export async function changeLayout(team: string, run: string, said: SpecJson): Promise<Run> {
  const batch = said["batch"] as Partial<Run["spec"]["batch"]> | undefined;
  const layout = { parallelism: said["parallelism"] ?? {}, micro_sequences: batch?.micro_sequences ?? null } as RunLayout;
  return body(
    await api.PUT("/api/v1/teams/{team}/runs/{run}/layout", { params: { path: { team, run } }, body: layout }),
  );
}
