import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, useSyncExternalStore } from "react";
import type { NamedFile } from "@/features/datasets/namedFiles";
import { uploadsQuery } from "@/features/datasets/queries";
import { isUsable, trayRows, type TrayRow } from "@/features/datasets/tray";
import { addFiles, dropUpload, remove, taken, uploadStore } from "@/features/datasets/uploads";

/** A team's files that no dataset uses yet, and what can be done with them. */
export function useTray(team: string) {
  const sendings = useSyncExternalStore(uploadStore.subscribe, uploadStore.all);
  const dropped = useSyncExternalStore(uploadStore.subscribe, uploadStore.dropped);
  const { data: uploads, error } = useQuery(uploadsQuery(team));
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [failure, setFailure] = useState<Error | null>(null);
  const client = useQueryClient();
  const rows = trayRows(team, sendings, uploads ?? [], dropped);
  const chosen = rows.filter((row) => isUsable(row) && !left.has(row.key));

  return {
    rows,
    left,
    /** Files that are to be used, in order. */
    chosen,
    ready: chosen.length > 0 && chosen.every(({ state }) => state === "complete"),
    error: failure ?? (uploads === undefined ? error : null),
    add: async (files: readonly NamedFile[]): Promise<void> => {
      setFailure(null);
      try {
        addFiles({ team, files, known: await client.query({ ...uploadsQuery(team), staleTime: 0 }) });
      } catch (thrown) {
        setFailure(thrown as Error);
      }
    },
    use: (key: string, use: boolean): void => {
      const next = new Set(left);
      if (use) next.delete(key);
      else next.add(key);
      setLeft(next);
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
