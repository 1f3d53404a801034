import type { Me } from "@/api/types";
import type { Searchable } from "@/app/palette/searchCommands";

/** Pages with a shortcut. */
export const PAGES = [
  { key: "g h", to: "/$team", label: "Home" },
  { key: "g r", to: "/$team/runs", label: "Runs" },
  { key: "g q", to: "/$team/queue", label: "Queue" },
  { key: "g d", to: "/$team/datasets", label: "Datasets" },
  { key: "g c", to: "/$team/checkpoints", label: "Checkpoints" },
  { key: "g n", to: "/$team/nodes", label: "Nodes" },
  { key: "g u", to: "/$team/usage", label: "Usage" },
  { key: "g o", to: "/$team/notices", label: "Notices" },
  { key: "g s", to: "/$team/settings", label: "Settings" },
] as const;

export function pagesOf(me: Me) {
  return PAGES.filter(({ to }) => to !== "/$team/nodes" || me.site_admin);
}

/** One entry of the palette. */
export interface Command extends Searchable {
  id: string;
  group: "Pages" | "Actions" | "Runs" | "Datasets";
  /** Shown next to the label: a shortcut or a state. */
  hint?: string;
  run: () => void;
}

/** All shortcuts, for the help dialog. */
export function shortcutsOf(me: Me, canEdit: boolean): { context: string; keys: [string, string][] }[] {
  return [
    {
      context: "Everywhere",
      keys: [
        ["Ctrl K or ⌘ K", "open the command palette"],
        ...pagesOf(me).map(({ key, label }): [string, string] => [key, label]),
        ...(canEdit ? ([["n", "new run"]] as [string, string][]) : []),
        ["?", "show keyboard shortcuts"],
        ["Esc", "close the open dialog"],
      ],
    },
    {
      context: "Runs",
      keys: [
        ["/", "filter"],
        ["j k", "move down and up"],
        ["↵", "open"],
        ["x", "select"],
      ],
    },
    {
      context: "A run",
      keys: [
        ...(canEdit ? ([["e", "edit name, tags and notes"]] as [string, string][]) : []),
        ["+ −", "zoom a focused chart in and out"],
        ["← →", "earlier and later steps"],
        ["0", "show the full run"],
      ],
    },
  ];
}
