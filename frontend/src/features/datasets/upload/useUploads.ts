import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState, useSyncExternalStore } from "react";
import type { LocalFile } from "@/features/datasets/upload/localFiles";
import { uploadsQuery } from "@/features/datasets/queries";
import { isRemembered } from "@/features/datasets/upload/fileFingerprints";
import { excludedFiles, storeExcludedFiles } from "@/features/datasets/upload/excludedFiles";
import { isUsable, uploadRows, type UploadRowData } from "@/features/datasets/upload/uploadRows";
import { addFiles, deleteUpload, remove, removeConsumed, uploadStore } from "@/features/datasets/upload/uploadStore";

/** Which files are selected initially: those uploaded in this browser except excluded ones, or only those added on this page. */
export type DefaultSelection = "this browser's" | "added here";

/** The team's files that no dataset uses yet, and the actions on them. */
export function useUploads(team: string, defaultSelection: DefaultSelection) {
  const tasks = useSyncExternalStore(uploadStore.subscribe, uploadStore.all);
  const dropped = useSyncExternalStore(uploadStore.subscribe, uploadStore.dropped);
  const { data: uploads, error } = useQuery(uploadsQuery(team));
  const [excluded, setExcluded] = useState(() => excludedFiles(team));
  const [addedHere, setAddedHere] = useState<ReadonlySet<string>>(new Set());
  const [failure, setFailure] = useState<Error | null>(null);
  const client = useQueryClient();
  const rows = uploadRows(team, tasks, uploads ?? [], dropped);
  // The server counts a file as stored from the moment at which it creates the upload.
  const created = tasks.filter((task) => task.team === team && task.uploadId !== null).length;
  useEffect(() => {
    if (created > 0) void client.invalidateQueries(storageOf(team));
  }, [client, team, created]);
  const isSelected = ({ key, uploadId }: UploadRowData) =>
    addedHere.has(key) || (defaultSelection === "this browser's" && isFromHere(key, uploadId) && !excluded.has(key) && !excluded.has(uploadId ?? key));
  // Files from the command line or another browser may be in use elsewhere, so they are not used until they are ticked.
  const isFromHere = (key: string, uploadId: string | null) => tasks.some((task) => task.key === key) || isRemembered(uploadId ?? key);
  const selected = rows.filter((row) => isUsable(row) && isSelected(row));

  /** Tracked by key and id: a file gets its id during the upload and a new key after a reload. */
  function updateSelection(keys: readonly string[], unused: readonly UploadRowData[]): void {
    const deselected = unused.flatMap(({ key, uploadId }) => [key, uploadId ?? key]);
    setAddedHere((before) => new Set([...before, ...keys].filter((key) => !deselected.includes(key))));
    const ids = uploadStore.all().flatMap(({ key, uploadId }) => (keys.includes(key) ? (uploadId ?? []) : []));
    const next = new Set([...excluded, ...deselected].filter((key) => !keys.includes(key) && !ids.includes(key)));
    setExcluded(next);
    storeExcludedFiles(team, next);
  }

  return {
    rows,
    isSelected,
    /** Selected files, in order. */
    selected,
    ready: selected.length > 0 && selected.every(({ state }) => state === "complete"),
    error: failure ?? (uploads === undefined ? error : null),
    add: async (files: readonly LocalFile[]): Promise<void> => {
      setFailure(null);
      try {
        updateSelection(addFiles({ team, files, known: await client.query({ ...uploadsQuery(team), staleTime: 0 }) }), []);
      } catch (thrown) {
        setFailure(thrown as Error);
      }
    },
    select: (row: UploadRowData, used: boolean): void => {
      if (used) updateSelection([row.key, row.uploadId ?? row.key], []);
      else updateSelection([], [row]);
    },
    remove: ({ key, local, uploadId }: UploadRowData): void => {
      setFailure(null);
      const going = local ? remove(key) : deleteUpload(team, uploadId ?? key);
      going
        .then(() => client.invalidateQueries(storageOf(team)))
        .catch((thrown: unknown) => {
          setFailure(thrown as Error);
        });
    },
    /** The files now belong to a dataset. */
    finish: (uploadIds: readonly string[]): void => {
      removeConsumed(uploadIds);
      void client.invalidateQueries({ queryKey: ["uploads", team] });
      void client.invalidateQueries({ queryKey: ["datasets", team] });
      void client.invalidateQueries(storageOf(team));
    },
  };
}

/** The team's own query, which has the bytes that it stores. */
function storageOf(team: string) {
  return { queryKey: ["team", team], exact: true };
}
