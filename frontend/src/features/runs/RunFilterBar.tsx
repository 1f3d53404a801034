import { ChevronDown } from "lucide-react";
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import type { RunState } from "@/api/types";
import { Button } from "@/components/Button";
import { Menu } from "@/components/Menu";
import { MenuCheck } from "@/components/MenuCheck";
import { StateIcon } from "@/components/StateIcon";
import { TagChip } from "@/components/TagChip";
import { TextInput } from "@/components/TextInput";
import { leavesOut, spoken, toggledStates, toggledTag, type RunFilter } from "@/features/runs/runFilter";
import { RUN_STATES, stateLook } from "@/lib/stateLook";
import { useDebounced } from "@/lib/useDebounced";
import { useHotkeys } from "@/lib/useHotkeys";

interface Props {
  filter: RunFilter;
  onFilter: (filter: RunFilter) => void;
  onClear: () => void;
  /** At the end of the bar. */
  children?: ReactNode;
}

const TYPING_MS = 250;

/** States by the word that people see; two of them say the same. */
const WORDS = [...new Set(RUN_STATES.map((state) => stateLook[state].word))].map(
  (word): [string, RunState[]] => [word, RUN_STATES.filter((state) => stateLook[state].word === word)],
);

/** Which runs are listed: by words of their names, by state, by tag, or one's own. `/` leads to the words, among which `tag:` and `state:` are heard. */
export function RunFilterBar({ filter, onFilter, onClear, children }: Props) {
  const input = useRef<HTMLInputElement>(null);
  useHotkeys(useMemo(() => ({ "/": () => input.current?.focus() }), []));
  const q = filter.q ?? "";
  const [text, setText] = useState(q);
  const rested = useDebounced(text, TYPING_MS);
  const [before, setBefore] = useState(q);
  if (q !== before) {
    setBefore(q);
    // Words that this field sent come back without the space at their end, and must not take it from who types on.
    if (q !== rested.trim()) setText(q);
  }
  const latest = useRef({ filter, onFilter });
  useEffect(() => {
    latest.current = { filter, onFilter };
  });
  useEffect(() => {
    const { filter: before, onFilter } = latest.current;
    const { filter, rest } = spoken(before, rested);
    const q = rest.trim();
    if (filter === before && q === (before.q ?? "")) return;
    if (filter !== before) setText(q);
    onFilter({ ...filter, q: q === "" ? undefined : q });
  }, [rested]);
  const states = filter.state ?? [];
  const chosen = WORDS.filter(([, of]) => of.every((one) => states.includes(one))).map(([word]) => word);
  return (
    <div role="search" aria-label="Runs" className="mb-4 flex flex-wrap items-center gap-2">
      <div className="w-72 max-tablet:w-full">
        <TextInput
          ref={input}
          type="search"
          aria-label="Words in the name"
          aria-keyshortcuts="/"
          placeholder="Name, tag:night or state:failed"
          maxLength={200}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape") event.currentTarget.blur();
          }}
        />
      </div>
      <Menu
        trigger={
          <Button>
            <span className="max-w-64 truncate">{chosen.length === 0 ? "Any state" : chosen.join(", ")}</span>
            <ChevronDown aria-hidden size={14} className="text-soft" />
          </Button>
        }
      >
        {WORDS.map(([word, of]) => (
          <MenuCheck
            key={word}
            checked={chosen.includes(word)}
            onChange={() => {
              onFilter(toggledStates(filter, of));
            }}
          >
            <span className={`flex items-center gap-1.5 ${look(of).color}`}>
              <StateIcon shape={look(of).shape} />
              {word}
            </span>
          </MenuCheck>
        ))}
      </Menu>
      <label className="flex h-8 cursor-pointer items-center gap-2 px-1 max-tablet:h-11">
        <input
          type="checkbox"
          checked={filter.mine === true}
          onChange={(event) => {
            onFilter({ ...filter, mine: event.target.checked ? true : undefined });
          }}
        />
        Mine
      </label>
      {filter.tag?.map((tag) => (
        <TagChip
          key={tag}
          name={`tag ${tag}`}
          verb="take away"
          sign="×"
          onPress={() => {
            onFilter(toggledTag(filter, tag));
          }}
        />
      ))}
      {leavesOut(filter) && (
        <Button look="quiet" onClick={onClear}>
          Clear filters
        </Button>
      )}
      {children}
    </div>
  );
}

function look(states: readonly RunState[]) {
  return stateLook[states[0] ?? "queued"];
}
