import { keepPreviousData, queryOptions, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useEffect, useId, useRef, useState, type KeyboardEvent } from "react";
import { api, body } from "@/api/client";
import type { Run } from "@/api/types";
import type { Command } from "@/app/palette/commands";
import { StatePill } from "@/components/StatePill";
import { datasetsQuery } from "@/features/datasets/queries";
import { found } from "@/lib/findCommands";
import { useDebounced } from "@/lib/useDebounced";

interface Props {
  team: string;
  /** Pages and verbs. */
  commands: readonly Command[];
  onOpenRun: (run: Run) => void;
  onOpenDataset: (dataset: string) => void;
  onClose: () => void;
}

const MOST = 8;
const TYPING_MS = 150;
const GROUPS = ["Pages", "Do", "Runs", "Datasets"] as const;

/** Everything by a few letters: pages, what can be done here, runs and datasets by name. */
export function Palette({ team, commands, onOpenRun, onOpenDataset, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const listId = useId();
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const q = useDebounced(typed.trim(), TYPING_MS);
  const runs = useQuery(foundRunsQuery(team, q));
  const datasets = useInfiniteQuery({ ...datasetsQuery(team), refetchInterval: false });
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => {
      element?.close();
    };
  }, []);
  const states = new Map((runs.data ?? []).map((run) => [`run ${run.id}`, run]));
  const all: Command[] = [
    ...found(commands, typed),
    ...(runs.data ?? []).map(
      (run): Command => ({
        id: `run ${run.id}`,
        group: "Runs",
        words: run.name,
        run: () => {
          onOpenRun(run);
        },
      }),
    ),
    ...found(
      (datasets.data?.pages ?? []).flatMap(({ items }) => items).map(
        ({ id, name }): Command => ({
          id: `dataset ${id}`,
          group: "Datasets",
          words: name,
          run: () => {
            onOpenDataset(id);
          },
        }),
      ),
      typed,
    ).slice(0, MOST),
  ];
  const shown = GROUPS.flatMap((group) => all.filter((command) => command.group === group));
  const chosen = Math.min(at, Math.max(0, shown.length - 1));
  return (
    <dialog
      ref={dialog}
      aria-label="Find and do"
      onCancel={onClose}
      onClose={onClose}
      className="mx-auto mt-[12vh] mb-auto w-[min(560px,calc(100vw-32px))] rounded-box border border-line bg-surface p-0 text-text shadow-float"
    >
      <input
        role="combobox"
        aria-expanded
        aria-controls={listId}
        aria-activedescendant={shown[chosen] && `${listId}-${chosen}`}
        aria-label="Page, run, dataset or command"
        placeholder="Find a page, run or dataset, or something to do"
        autoComplete="off"
        spellCheck={false}
        maxLength={200}
        className="h-12 w-full border-b bg-surface px-4 outline-none"
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
          setAt(0);
        }}
        onKeyDown={onKey}
      />
      <div id={listId} role="listbox" aria-label="Found" className="max-h-[50vh] overflow-y-auto p-1">
        {GROUPS.filter((group) => shown.some((command) => command.group === group)).map((group) => (
          <div key={group} role="group" aria-label={group}>
            <p aria-hidden className="px-3 pt-2 pb-1 text-small text-soft">
              {group}
            </p>
              {shown.map((command, index) => {
                const run = states.get(command.id);
                return (
                  command.group === group && (
                    <Option
                      key={command.id}
                      id={`${listId}-${index}`}
                      command={command}
                      run={run}
                      chosen={index === chosen}
                      onPoint={() => {
                        setAt(index);
                      }}
                      onTake={() => {
                        take(command);
                      }}
                    />
                  )
                );
              })}
          </div>
        ))}
      </div>
      {shown.length === 0 && (
        <p role="status" className="px-4 py-3 text-soft">
          {runs.isFetching ? "Looking…" : "Nothing is called so."}
        </p>
      )}
    </dialog>
  );

  function onKey(event: KeyboardEvent): void {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move !== undefined && shown.length > 0) {
      const next = (chosen + move + shown.length) % shown.length;
      setAt(next);
      document.getElementById(`${listId}-${next}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      const command = shown[chosen];
      if (command !== undefined) take(command);
    } else return;
    event.preventDefault();
  }

  function take(command: Command): void {
    onClose();
    command.run();
  }
}

interface OptionProps {
  id: string;
  command: Command;
  run: Run | undefined;
  chosen: boolean;
  onPoint: () => void;
  onTake: () => void;
}

function Option({ id, command, run, chosen, onPoint, onTake }: OptionProps) {
  return (
      <button
        type="button"
        id={id}
        role="option"
        aria-selected={chosen}
        tabIndex={-1}
        className={`flex h-9 w-full items-center justify-between gap-4 rounded-box px-3 text-left max-tablet:h-11 ${chosen ? "bg-raised" : ""}`}
        onMouseMove={onPoint}
        onClick={onTake}
      >
        <span className="min-w-0 truncate">{command.words}</span>
        {run !== undefined ? <StatePill state={run.state} /> : <span className="text-small text-soft">{command.note}</span>}
      </button>
  );
}

function foundRunsQuery(team: string, q: string) {
  return queryOptions({
    queryKey: ["runs found", team, q],
    queryFn: async ({ signal }) => {
      const query = { limit: MOST, ...(q === "" ? {} : { q }) };
      return body(await api.GET("/api/v1/teams/{team}/runs", { params: { path: { team }, query }, signal })).items;
    },
    placeholderData: keepPreviousData,
    staleTime: 2_000,
  });
}
