/** The tabs of a run's page, as in its address. */
export const RUN_TABS = ["overview", "fp8", "samples", "logs", "events", "checkpoints", "configuration"] as const;

export type RunTab = (typeof RUN_TABS)[number];

export function isRunTab(tab: string): tab is RunTab {
  return (RUN_TABS as readonly string[]).includes(tab);
}
