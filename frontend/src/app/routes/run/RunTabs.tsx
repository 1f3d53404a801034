import { Link } from "@tanstack/react-router";
import { memo } from "react";
import { RUN_TABS, type RunTab } from "@/app/routes/run/tabNames";

interface Props {
  team: string;
  runId: string;
  current: RunTab;
  /** Whether the run trains in FP8; otherwise the FP8 tab is hidden. */
  fp8: boolean;
}

const LABELS: Record<RunTab, string> = {
  overview: "Overview",
  fp8: "FP8",
  logs: "Logs",
  events: "Events",
  checkpoints: "Checkpoints",
  configuration: "Configuration",
};

/** The tabs of a run. They are links, because each tab has an address. */
export const RunTabs = memo(function RunTabs({ team, runId, current, fp8 }: Props) {
  return (
    <nav aria-label="Parts of the run" className="mb-4 flex gap-5 overflow-x-auto border-b">
      {RUN_TABS.filter((tab) => fp8 || tab !== "fp8").map((tab) => (
        <Link
          key={tab}
          to="/$team/runs/$runId/$tab"
          params={{ team, runId, tab }}
          search={(search) => search}
          hash
          aria-current={tab === current ? "page" : undefined}
          className={`border-b-2 py-2 focus-visible:-outline-offset-2 ${tab === current ? "border-accent font-medium" : "border-transparent text-soft hover:text-text"}`}
        >
          {LABELS[tab]}
        </Link>
      ))}
    </nav>
  );
});
