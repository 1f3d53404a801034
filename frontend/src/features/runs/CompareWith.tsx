import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ChevronDown } from "lucide-react";
import { Popover } from "radix-ui";
import { useId, useState } from "react";
import type { Run } from "@/api/types";
import { buttonClass } from "@/components/Button";
import { StatePill } from "@/components/StatePill";
import { TextInput } from "@/components/TextInput";
import { othersQuery } from "@/features/runs/queries";
import { plural } from "@/lib/format";
import { useDebounced } from "@/lib/useDebounced";

interface Props {
  team: string;
  /** The run that others are compared with. */
  run: string;
}

const TYPING_MS = 150;

/** Chooses other runs of the team and opens the comparison with them; nothing where there is no other. */
export function CompareWith({ team, run }: Props) {
  const [open, setOpen] = useState(false);
  const { data: others } = useQuery(othersQuery(team, run, ""));
  if (others === undefined || others.length === 0) return null;
  return (
    <Popover.Root open={open} onOpenChange={setOpen}>
      <Popover.Trigger asChild>
        <button type="button" className="control inline-flex h-6.5 items-center gap-1 px-2 hover:bg-raised max-tablet:h-11">
          compare with
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
        <Choice team={team} run={run} />
      </Popover.Content>
    </Popover.Root>
  );
}

function Choice({ team, run }: Props) {
  const name = useId();
  const [typed, setTyped] = useState("");
  const [chosen, setChosen] = useState<readonly Run[]>([]);
  const { data: found, error, isFetching } = useQuery(othersQuery(team, run, useDebounced(typed.trim(), TYPING_MS)));
  const ids = chosen.map(({ id }) => id);
  // What is chosen stays in sight when other words are typed.
  const shown = [...chosen.filter(({ id }) => found?.every((one) => one.id !== id)), ...(found ?? [])];
  return (
    <>
      <TextInput
        type="search"
        aria-label="Find runs by name"
        aria-controls={name}
        placeholder="Find by name"
        maxLength={200}
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
        }}
      />
      <ul id={name} aria-label="Runs to compare with" className="my-1 max-h-64 overflow-y-auto">
        {shown.map((one) => (
          <li key={one.id}>
            <label className="flex h-8 cursor-pointer items-center gap-2 rounded-box px-2 hover:bg-raised has-focus-visible:bg-raised max-tablet:h-11">
              <input
                type="checkbox"
                className="shrink-0"
                checked={ids.includes(one.id)}
                onChange={(event) => {
                  setChosen(event.target.checked ? [...chosen, one] : chosen.filter(({ id }) => id !== one.id));
                }}
              />
              <span className="min-w-0 grow truncate" title={one.name}>
                {one.name}
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
          {error !== null ? "The runs could not be loaded." : isFetching ? "Looking…" : "No other run is called so."}
        </p>
      )}
      {chosen.length === 0 ? (
        <p className="px-2 py-1 text-small text-soft">Choose the runs whose curves you want beside this one’s.</p>
      ) : (
        <Link to="/$team/compare" params={{ team }} search={{ runs: [run, ...ids].join(",") }} className={buttonClass("primary", "w-full")}>
          Compare {plural(chosen.length + 1, "run")}
        </Link>
      )}
    </>
  );
}
