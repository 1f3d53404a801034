import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, useSyncExternalStore } from "react";
import type { NamedFile } from "@/features/datasets/namedFiles";
import { uploadsQuery } from "@/features/datasets/queries";
import { leftOut, storeLeftOut } from "@/features/datasets/leftOut";
import { isUsable, trayRows, type TrayRow } from "@/features/datasets/tray";
import { addFiles, dropUpload, remove, taken, uploadStore } from "@/features/datasets/uploads";

/** Which files are to be used before anybody has said so: all but those that were left out once, or those added here. */
export type Begin = "all" | "added here";

/** A team's files that no dataset uses yet, and what can be done with them. */
export function useTray(team: string, begin: Begin) {
  const sendings = useSyncExternalStore(uploadStore.subscribe, uploadStore.all);
  const dropped = useSyncExternalStore(uploadStore.subscribe, uploadStore.dropped);
  const { data: uploads, error } = useQuery(uploadsQuery(team));
  const [left, setLeft] = useState(() => leftOut(team));
  const [wanted, setWanted] = useState<ReadonlySet<string>>(new Set());
  const [failure, setFailure] = useState<Error | null>(null);
  const client = useQueryClient();
  const rows = trayRows(team, sendings, uploads ?? [], dropped);
  const isUsed = ({ key, uploadId }: TrayRow) =>
    begin === "added here" ? wanted.has(key) : !left.has(key) && !left.has(uploadId ?? key);
  const chosen = rows.filter((row) => isUsable(row) && isUsed(row));

  /** By key and by id: a file gets its id on its way, and has another key after a reload. */
  function mark(used: readonly string[], unused: readonly TrayRow[]): void {
    const gone = unused.flatMap(({ key, uploadId }) => [key, uploadId ?? key]);
    setWanted((before) => new Set([...before, ...used].filter((key) => !gone.includes(key))));
    const ids = uploadStore.all().flatMap(({ key, uploadId }) => (used.includes(key) ? (uploadId ?? []) : []));
    const next = new Set([...left, ...gone].filter((key) => !used.includes(key) && !ids.includes(key)));
    setLeft(next);
    storeLeftOut(team, next);
  }

  return {
    rows,
    isUsed,
    /** Files that are to be used, in order. */
    chosen,
    ready: chosen.length > 0 && chosen.every(({ state }) => state === "complete"),
    error: failure ?? (uploads === undefined ? error : null),
    add: async (files: readonly NamedFile[]): Promise<void> => {
      setFailure(null);
      try {
        mark(addFiles({ team, files, known: await client.query({ ...uploadsQuery(team), staleTime: 0 }) }), []);
      } catch (thrown) {
        setFailure(thrown as Error);
      }
    },
    use: (row: TrayRow, used: boolean): void => {
      if (used) mark([row.key, row.uploadId ?? row.key], []);
      else mark([], [row]);
    },
    remove: ({ key, local, uploadId }: TrayRow): void => {
      setFailure(null);
      const going = local ? remove(key) : dropUpload(team, uploadId ?? key);
      going.catch((thrown: unknown) => {
        setFailure(thrown as Error);
      });
    },
    /** A dataset has the files now. */
    finish: (uploadIds: readonly string[]): void => {
      taken(uploadIds);
      void client.invalidateQueries({ queryKey: ["uploads", team] });
      void client.invalidateQueries({ queryKey: ["datasets", team] });
      void client.invalidateQueries({ queryKey: ["team", team] });
    },
  };
}
