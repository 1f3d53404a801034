import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ChevronDown } from "lucide-react";
import { Popover } from "radix-ui";
import { useId, useState } from "react";
import type { Run } from "@/api/types";
import { buttonClass } from "@/components/Button";
import { StatePill } from "@/components/StatePill";
import { TextInput } from "@/components/TextInput";
import { otherRunsQuery } from "@/features/runs/queries";
import { plural } from "@/lib/format";
import { useDebounced } from "@/lib/hooks/useDebounced";
import { uniqueNames } from "@/lib/uniqueNames";

interface Props {
  team: string;
  /** The runs to compare with others. */
  runs: readonly string[];
  label: string;
  /** The address of a comparison; it keeps the view of an open one. */
  searchOf?: (runs: readonly string[]) => { runs?: string };
}

const SEARCH_DELAY_MS = 150;

/** Selects other runs of the team and opens a comparison with them; hidden if there are no others. */
export function CompareWith({ team, runs, label, searchOf = (runs) => ({ runs: runs.join(",") }) }: Props) {
  const [open, setOpen] = useState(false);
  const { data: others } = useQuery(otherRunsQuery(team, runs, ""));
  if (others === undefined || others.length === 0) return null;
  return (
    <Popover.Root open={open} onOpenChange={setOpen}>
      <Popover.Trigger asChild>
        <button type="button" className="control inline-flex h-6.5 items-center gap-1 px-2 hover:bg-raised max-tablet:h-11">
          {label}
          <ChevronDown aria-hidden size={14} />
        </button>
      </Popover.Trigger>
      <Popover.Content
        align="start"
        sideOffset={4}
        collisionPadding={8}
        aria-label="Compare with other runs"
        className="z-20 w-80 max-w-[calc(100vw-16px)] rounded-box border border-line bg-surface p-2 text-text shadow-float"
      >
        <RunPicker team={team} runs={runs} searchOf={searchOf} />
      </Popover.Content>
    </Popover.Root>
  );
}

function RunPicker({ team, runs, searchOf }: Required<Omit<Props, "label">>) {
  const listId = useId();
  const [typed, setTyped] = useState("");
  const [selected, setSelected] = useState<readonly Run[]>([]);
  const { data: found, error, isFetching } = useQuery(otherRunsQuery(team, runs, useDebounced(typed.trim(), SEARCH_DELAY_MS)));
  const ids = selected.map(({ id }) => id);
  // Selected runs stay visible when the search changes.
  const shown = [...selected.filter(({ id }) => found?.every((one) => one.id !== id)), ...(found ?? [])];
  const names = uniqueNames(shown);
  return (
    <>
      <TextInput
        type="search"
        aria-label="Find runs by name"
        aria-controls={listId}
        placeholder="Find by name"
        maxLength={200}
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
        }}
      />
      <ul id={listId} aria-label="Runs to compare with" className="my-1 max-h-64 overflow-y-auto">
        {shown.map((one) => (
          <li key={one.id}>
            <label className="flex h-8 cursor-pointer items-center gap-2 rounded-box px-2 hover:bg-raised has-focus-visible:bg-raised max-tablet:h-11">
              <input
                type="checkbox"
                className="shrink-0"
                checked={ids.includes(one.id)}
                onChange={(event) => {
                  setSelected(event.target.checked ? [...selected, one] : selected.filter(({ id }) => id !== one.id));
                }}
              />
              <span className="min-w-0 grow truncate" title={names.get(one.id)}>
                {names.get(one.id)}
              </span>
              <span className="shrink-0 text-small">
                <StatePill state={one.state} />
              </span>
            </label>
          </li>
        ))}
      </ul>
      {(shown.length === 0 || error !== null) && (
        <p role="status" className="px-2 py-1 text-soft">
          {error !== null ? "The runs could not be loaded." : isFetching ? "Searching…" : "No matching runs."}
        </p>
      )}
      {selected.length === 0 ? (
        <p className="px-2 py-1 text-small text-soft">Select runs to compare with {runs.length === 1 ? "this one" : "these"}.</p>
      ) : (
        <Popover.Close asChild>
          <Link to="/$team/compare" params={{ team }} search={searchOf([...runs, ...ids])} className={buttonClass("primary", "w-full")}>
            Compare {plural(runs.length + selected.length, "run")}
          </Link>
        </Popover.Close>
      )}
    </>
  );
}
