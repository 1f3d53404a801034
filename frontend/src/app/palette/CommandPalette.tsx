import { keepPreviousData, queryOptions, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useLayoutEffect, useRef, useState, type KeyboardEvent } from "react";
import { api, body } from "@/api/client";
import type { Run } from "@/api/types";
import type { Command } from "@/app/palette/commands";
import { StatePill } from "@/components/StatePill";
import { datasetsQuery } from "@/features/datasets/queries";
import { searchCommands } from "@/app/palette/searchCommands";
import { useDebounced } from "@/lib/hooks/useDebounced";
import { uniqueNames } from "@/lib/uniqueNames";

interface Props {
  team: string;
  /** Pages and actions. */
  commands: readonly Command[];
  onOpenRun: (run: Run) => void;
  onOpenDataset: (dataset: string) => void;
  onClose: () => void;
}

const MAX_RESULTS = 8;
const SEARCH_DELAY_MS = 150;
const GROUPS = ["Pages", "Actions", "Runs", "Datasets"] as const;

/** Finds pages, actions, runs and datasets by a few letters. */
export function CommandPalette({ team, commands, onOpenRun, onOpenDataset, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const listId = useId();
  const [typed, setTyped] = useState("");
  const [activeIndex, setActiveIndex] = useState(0);
  const q = useDebounced(typed.trim(), SEARCH_DELAY_MS);
  const runs = useQuery(runSearchQuery(team, q));
  const client = useQueryClient();
  // Until the search has caught up, earlier results are shown as far as they still match.
  const isBehind = q !== typed.trim() || runs.isPlaceholderData;
  const foundRuns = isBehind ? searchCommands((runs.data ?? []).map((run) => ({ label: run.name, run })), typed).map(({ run }) => run) : (runs.data ?? []);
  const datasets = useInfiniteQuery({ ...datasetsQuery(team), refetchInterval: false });
  // A layout effect is undone while the dialog is still in the page: only then does closing it return the focus.
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => {
      element?.close();
    };
  }, []);
  const foundDatasets = (datasets.data?.pages ?? []).flatMap(({ items }) => items);
  const runNames = uniqueNames(foundRuns);
  const datasetNames = uniqueNames(foundDatasets);
  const runById = new Map(foundRuns.map((run) => [`run ${run.id}`, run]));
  const matches: Command[] = [
    ...searchCommands(commands, typed),
    ...foundRuns.map(
      (run): Command => ({
        id: `run ${run.id}`,
        group: "Runs",
        label: runNames.get(run.id) ?? run.name,
        run: () => {
          onOpenRun(run);
        },
      }),
    ),
    ...searchCommands(
      foundDatasets.map(
        ({ id, name }): Command => ({
          id: `dataset ${id}`,
          group: "Datasets",
          label: datasetNames.get(id) ?? name,
          run: () => {
            onOpenDataset(id);
          },
        }),
      ),
      typed,
    ).slice(0, MAX_RESULTS),
  ];
  const shown = GROUPS.flatMap((group) => matches.filter((command) => command.group === group));
  const active = Math.min(activeIndex, Math.max(0, shown.length - 1));
  return (
    <dialog
      ref={dialog}
      aria-label="Command palette"
      onCancel={onClose}
      onClose={onClose}
      className="mx-auto mt-[12vh] mb-auto w-[min(560px,calc(100vw-32px))] rounded-box border border-line bg-surface p-0 text-text shadow-float"
    >
      <input
        role="combobox"
        aria-expanded
        aria-controls={listId}
        aria-activedescendant={shown[active] && `${listId}-${active}`}
        aria-label="Page, run, dataset or command"
        placeholder="Search pages, runs, datasets and commands"
        autoComplete="off"
        spellCheck={false}
        maxLength={200}
        className="h-12 w-full border-b bg-surface px-4 outline-none"
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
          setActiveIndex(0);
        }}
        onKeyDown={onKey}
      />
      <div id={listId} role="listbox" aria-label="Results" className="max-h-[50vh] overflow-y-auto p-1">
        {GROUPS.filter((group) => shown.some((command) => command.group === group)).map((group) => (
          <div key={group} role="group" aria-label={group}>
            <p aria-hidden className="px-3 pt-2 pb-1 text-small text-soft">
              {group}
            </p>
              {shown.map((command, index) => {
                const run = runById.get(command.id);
                return (
                  command.group === group && (
                    <Option
                      key={command.id}
                      id={`${listId}-${index}`}
                      command={command}
                      run={run}
                      active={index === active}
                      onHover={() => {
                        setActiveIndex(index);
                      }}
                      onSelect={() => {
                        execute(command);
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
          {runs.isFetching ? "Searching…" : "No results."}
        </p>
      )}
    </dialog>
  );

  function onKey(event: KeyboardEvent): void {
    const offset = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (offset !== undefined && shown.length > 0) {
      const next = (active + offset + shown.length) % shown.length;
      setActiveIndex(next);
      document.getElementById(`${listId}-${next}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      void enter();
    } else return;
    event.preventDefault();
  }

  /** Enter straight after typing waits for the search, unless it means a page or an action. */
  async function enter(): Promise<void> {
    const command = shown[active];
    if (!isBehind || command?.group === "Pages" || command?.group === "Actions") {
      if (command !== undefined) execute(command);
      return;
    }
    const [run] = await client.query({ ...runSearchQuery(team, typed.trim()), staleTime: 0 });
    const dataset = matches.find(({ group }) => group === "Datasets");
    if (run !== undefined) {
      onClose();
      onOpenRun(run);
    } else if (dataset !== undefined) execute(dataset);
  }

  function execute(command: Command): void {
    onClose();
    command.run();
  }
}

interface OptionProps {
  id: string;
  command: Command;
  run: Run | undefined;
  active: boolean;
  onHover: () => void;
  onSelect: () => void;
}

function Option({ id, command, run, active, onHover, onSelect }: OptionProps) {
  return (
      <button
        type="button"
        id={id}
        role="option"
        aria-selected={active}
        tabIndex={-1}
        className={`flex h-9 w-full items-center justify-between gap-4 rounded-box px-3 text-left max-tablet:h-11 ${active ? "bg-raised" : ""}`}
        onMouseMove={onHover}
        onClick={onSelect}
      >
        <span className="min-w-0 truncate">{command.label}</span>
        {run !== undefined ? <StatePill state={run.state} /> : <span className="text-small text-soft">{command.hint}</span>}
      </button>
  );
}

function runSearchQuery(team: string, q: string) {
  return queryOptions({
    queryKey: ["runs found", team, q],
    queryFn: async ({ signal }) => {
      const query = { limit: MAX_RESULTS, ...(q === "" ? {} : { q }) };
      return body(await api.GET("/api/v1/teams/{team}/runs", { params: { path: { team }, query }, signal })).items;
    },
    placeholderData: keepPreviousData,
    staleTime: 2_000,
  });
}
