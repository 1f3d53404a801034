import { ChevronDown } from "lucide-react";
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import type { RunState } from "@/api/types";
import { Button } from "@/components/Button";
import { Menu } from "@/components/Menu";
import { MenuCheckbox } from "@/components/MenuCheckbox";
import { StateIcon } from "@/components/StateIcon";
import { TagChip } from "@/components/TagChip";
import { TextInput } from "@/components/TextInput";
import { isFiltering, parseTypedFilter, splitUnfinishedTerm, toggleStates, toggleTag, type RunFilter } from "@/features/runs/list/runFilter";
import { RUN_STATES, stateStyle } from "@/lib/runs/stateStyle";
import { useDebounced } from "@/lib/hooks/useDebounced";
import { useHotkeys } from "@/lib/hooks/useHotkeys";

interface Props {
  filter: RunFilter;
  onFilter: (filter: RunFilter) => void;
  onClear: () => void;
  /** Whether phones show checkboxes. */
  selecting: boolean;
  onSelecting: (selecting: boolean) => void;
  /** More controls of the bar. */
  children?: ReactNode;
}

const SEARCH_DELAY_MS = 250;

/** States grouped by label; two states share one. */
const STATE_GROUPS = [...new Set(RUN_STATES.map((state) => stateStyle[state].label))].map(
  (word): [string, RunState[]] => [word, RUN_STATES.filter((state) => stateStyle[state].label === word)],
);

/**
 * Filters runs by name, state, tag and owner. `/` focuses the search field, which also understands `tag:` and
 * `state:`.
 */
export function RunFilterBar({ filter, onFilter, onClear, selecting, onSelecting, children }: Props) {
  const input = useRef<HTMLInputElement>(null);
  useHotkeys(useMemo(() => ({ "/": () => input.current?.focus() }), []));
  const q = filter.q ?? "";
  const [text, setText] = useState(q);
  const debouncedText = useDebounced(text, SEARCH_DELAY_MS);
  const [previousQ, setPreviousQ] = useState(q);
  if (q !== previousQ) {
    setPreviousQ(q);
    // The field's own query comes back and must not remove what the user is typing.
    if (q !== queryOf(debouncedText)) setText(q);
  }
  const latest = useRef({ filter, onFilter });
  useEffect(() => {
    latest.current = { filter, onFilter };
  });
  useEffect(() => {
    const { filter: before, onFilter } = latest.current;
    const [finished, unfinished] = splitUnfinishedTerm(debouncedText);
    const { filter, rest } = parseTypedFilter(before, finished);
    const q = rest.trim();
    if (filter === before && q === (before.q ?? "")) return;
    if (filter !== before) {
      setText((typed) => rest.trimStart() + unfinished + (typed.startsWith(debouncedText) ? typed.slice(debouncedText.length) : ""));
    }
    onFilter({ ...filter, q: q === "" ? undefined : q });
  }, [debouncedText]);
  const finishTerm = () => {
    if (splitUnfinishedTerm(text)[1] !== "") setText(`${text} `);
  };
  const states = filter.state ?? [];
  const selectedLabels = STATE_GROUPS.filter(([, of]) => of.every((value) => states.includes(value))).map(([word]) => word);
  return (
    <div role="search" aria-label="Runs" className="mb-4 flex flex-wrap items-center gap-2">
      <div className="flex gap-2 max-tablet:w-full">
        <div className="w-72 max-tablet:w-auto max-tablet:flex-1">
          <TextInput
            ref={input}
            type="search"
            aria-label="Search by name"
            aria-keyshortcuts="/"
            placeholder="Name, tag:night or state:failed"
            maxLength={200}
            value={text}
            onChange={(event) => {
              setText(event.target.value);
            }}
            onKeyDown={(event) => {
              if (event.key === "Escape") event.currentTarget.blur();
              if (event.key === "Enter") finishTerm();
            }}
            onBlur={finishTerm}
          />
        </div>
        <Button
          className="tablet:hidden"
          onClick={() => {
            onSelecting(!selecting);
          }}
        >
          {selecting ? "Stop selecting" : "Select"}
        </Button>
      </div>
      <Menu
        trigger={
          <Button>
            <span className="max-w-64 truncate">{selectedLabels.length === 0 ? "Any state" : selectedLabels.join(", ")}</span>
            <ChevronDown aria-hidden size={14} className="text-soft" />
          </Button>
        }
      >
        {STATE_GROUPS.map(([word, of]) => (
          <MenuCheckbox
            key={word}
            checked={selectedLabels.includes(word)}
            onChange={() => {
              onFilter(toggleStates(filter, of));
            }}
          >
            <span className={`flex items-center gap-1.5 ${groupStyle(of).color}`}>
              <StateIcon shape={groupStyle(of).shape} />
              {word}
            </span>
          </MenuCheckbox>
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
          action="remove"
          suffix="×"
          onPress={() => {
            onFilter(toggleTag(filter, tag));
          }}
        />
      ))}
      {children}
      {isFiltering(filter) && (
        <Button variant="quiet" onClick={onClear}>
          Clear filters
        </Button>
      )}
    </div>
  );
}

/** What is searched for in names. */
function queryOf(text: string): string {
  return parseTypedFilter({}, splitUnfinishedTerm(text)[0]).rest.trim();
}

function groupStyle(states: readonly RunState[]) {
  return stateStyle[states[0] ?? "queued"];
}
