/** Uploads that are under way. They live outside the pages, so that walking through the app does not end them. */
import { ApiError, ConnectionError, parseErrorBody } from "@/api/errors";
import type { Dataset } from "@/api/types";
import { randomId } from "@/lib/randomId";

export interface Upload {
  id: string;
  team: string;
  /** The dataset that gets a version; null: a new one. */
  dataset: string | null;
  name: string;
  sent: number;
  total: number;
  bytesPerSecond: number;
  error: Error | null;
  cancel: () => void;
}

interface Wish {
  team: string;
  dataset: string | null;
  name: string;
  files: readonly File[];
  onDone: (dataset: Dataset) => void;
}

let uploads: readonly Upload[] = [];
const listeners = new Set<() => void>();

export const uploadStore = {
  all: (): readonly Upload[] => uploads,
  subscribe: (listener: () => void): (() => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  dismiss: (id: string): void => {
    set(uploads.filter((upload) => upload.id !== id));
  },
};

/** Sends files. `fetch` cannot tell how much of a body has gone out, so this is an XMLHttpRequest. */
export function startUpload({ team, dataset, name, files, onDone }: Wish): void {
  const http = new XMLHttpRequest();
  const started = Date.now();
  const upload: Upload = {
    id: randomId(),
    team,
    dataset,
    name,
    sent: 0,
    total: files.reduce((sum, file) => sum + file.size, 0),
    bytesPerSecond: 0,
    error: null,
    cancel: () => {
      http.abort();
    },
  };
  set([...uploads, upload]);
  const update = (change: Partial<Upload>) => {
    set(uploads.map((one) => (one.id === upload.id ? { ...one, ...change } : one)));
  };
  http.upload.onprogress = ({ loaded, total }) => {
    update({ sent: loaded, total, bytesPerSecond: (loaded * 1_000) / Math.max(1, Date.now() - started) });
  };
  http.onload = () => {
    if (http.status >= 200 && http.status < 300) {
      uploadStore.dismiss(upload.id);
      onDone(JSON.parse(http.responseText) as Dataset);
    } else {
      update({ error: new ApiError(http.status, parseErrorBody(http.responseText)) });
    }
  };
  http.onerror = () => {
    update({ error: new ConnectionError() });
  };
  http.onabort = () => {
    uploadStore.dismiss(upload.id);
  };
  http.open("POST", addressOf(team, dataset));
  http.send(formOf(dataset === null ? name : null, files));
}

function addressOf(team: string, dataset: string | null): string {
  const base = `/api/v1/teams/${encodeURIComponent(team)}/datasets`;
  return dataset === null ? base : `${base}/${encodeURIComponent(dataset)}/versions`;
}

/** The name stands before the files: the API reads the form as it arrives. */
function formOf(name: string | null, files: readonly File[]): FormData {
  const form = new FormData();
  if (name !== null) form.append("name", name);
  for (const file of files) form.append("files", file, file.name);
  return form;
}

function set(next: readonly Upload[]): void {
  uploads = next;
  const sending = uploads.some(({ error }) => error === null);
  window.onbeforeunload = sending ? askBeforeLeaving : null;
  for (const listener of listeners) listener();
}

/** Closing the browser would end the upload. */
function askBeforeLeaving(event: BeforeUnloadEvent): void {
  event.preventDefault();
}
