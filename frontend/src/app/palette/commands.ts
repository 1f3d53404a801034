import type { Me } from "@/api/types";
import type { Findable } from "@/lib/findCommands";

/** Pages that a key leads to from everywhere. */
export const PAGES = [
  { key: "g h", to: "/$team", words: "Home" },
  { key: "g r", to: "/$team/runs", words: "Runs" },
  { key: "g d", to: "/$team/datasets", words: "Datasets" },
  { key: "g c", to: "/$team/checkpoints", words: "Checkpoints" },
  { key: "g n", to: "/$team/nodes", words: "Nodes" },
  { key: "g u", to: "/$team/usage", words: "Usage" },
  { key: "g s", to: "/$team/settings", words: "Settings" },
] as const;

export function pagesOf(me: Me) {
  return PAGES.filter(({ to }) => to !== "/$team/nodes" || me.site_admin);
}

/** One line of the palette. */
export interface Command extends Findable {
  id: string;
  group: "Pages" | "Do" | "Runs" | "Datasets";
  /** Beside the words: a key, a state. */
  note?: string;
  run: () => void;
}

/** All keys, for the help. */
export function keysOf(me: Me, mayEdit: boolean): { where: string; keys: [string, string][] }[] {
  return [
    {
      where: "Everywhere",
      keys: [
        ["Ctrl K or ⌘ K", "find and do"],
        ...pagesOf(me).map(({ key, words }): [string, string] => [key, words]),
        ...(mayEdit ? ([["n", "new run"]] as [string, string][]) : []),
        ["?", "these keys"],
        ["Esc", "close what is open"],
      ],
    },
    {
      where: "Runs",
      keys: [
        ["/", "filter"],
        ["j k", "walk down and up"],
        ["↵", "open"],
        ["x", "select"],
      ],
    },
    {
      where: "A run",
      keys: [
        ...(mayEdit ? ([["e", "name, tags and notes"]] as [string, string][]) : []),
        ["+ −", "zoom a focused chart in and out"],
        ["← →", "earlier and later steps"],
        ["0", "the whole run"],
      ],
    },
  ];
}
