import { Link } from "@tanstack/react-router";
import { memo } from "react";
import { RUN_TABS, type RunTab } from "@/app/routes/run/tabNames";

interface Props {
  team: string;
  runId: string;
  current: RunTab;
  /** Tabs that do not apply to this run. */
  hidden: readonly RunTab[];
}

const LABELS: Record<RunTab, string> = {
  overview: "Overview",
  fp8: "FP8",
  samples: "Samples",
  logs: "Logs",
  events: "Events",
  checkpoints: "Checkpoints",
  configuration: "Configuration",
};

/** The tabs of a run. They are links, because each tab has an address. */
export const RunTabs = memo(function RunTabs({ team, runId, current, hidden }: Props) {
  return (
    <nav aria-label="Parts of the run" className="scroll-hint mb-4 flex gap-3 overflow-x-auto border-b max-tablet:gap-1">
      {RUN_TABS.filter((tab) => tab === current || !hidden.includes(tab)).map((tab) => (
        <Link
          key={tab}
          ref={tab === current ? centerTab : undefined}
          to="/$team/runs/$runId/$tab"
          params={{ team, runId, tab }}
          search={(search) => search}
          hash
          aria-current={tab === current ? "page" : undefined}
          className={`border-b-2 px-1 py-2 focus-visible:-outline-offset-2 ${tab === current ? "border-accent font-medium" : "border-transparent text-soft hover:text-text"}`}
        >
          {LABELS[tab]}
        </Link>
      ))}
    </nav>
  );
});

/** Where the tabs are wider than the screen, scrolls them to the current one. */
function centerTab(tab: HTMLElement | null): void {
  const tabs = tab?.parentElement;
  if (tabs) tabs.scrollLeft = tab.offsetLeft - (tabs.clientWidth - tab.offsetWidth) / 2;
}
