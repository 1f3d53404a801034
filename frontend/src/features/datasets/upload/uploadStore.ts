/**
 * Uploads to the server. They live outside the pages, so that navigation does not stop them, and use tus 1.0, so
 * that the server keeps what it received. A browser cannot reopen a file by itself: after a reload the server's
 * list shows incomplete uploads, and choosing the same file again resumes them.
 */
import { DetailedError, Upload as Tus } from "tus-js-client";
import { ApiError, ConnectionError, parseErrorBody } from "@/api/errors";
import type { Upload } from "@/api/types";
import type { LocalFile } from "@/features/datasets/upload/localFiles";
import { forgetFile, isSameFile, rememberFile } from "@/features/datasets/upload/fileFingerprints";
import { Throughput } from "@/features/datasets/upload/throughput";
import { connection } from "@/lib/connection";
import { randomId } from "@/lib/randomId";
import { beforeSignOut } from "@/lib/signOutTasks";

/**
 * `doubtful`: the server has part of a file with this name and size, and only the user knows whether it is the
 * same file.
 */
export type UploadState = "doubtful" | "queued" | "sending" | "paused" | "failed" | "complete";

export interface UploadTask {
  key: string;
  team: string;
  name: string;
  bytes: number;
  sent: number;
  bytesPerSecond: number;
  state: UploadState;
  /** The server does not respond; the upload resumes automatically. */
  isOffline: boolean;
  error: Error | null;
  /** Known once the server has created the upload. */
  uploadId: string | null;
  /** The file is not for a dataset; its page handles it. */
  isStandalone: boolean;
}

interface Transfer {
  file: File;
  tus: Tus;
  throughput: Throughput;
}

interface NewUploads {
  team: string;
  files: readonly LocalFile[];
  /** Uploads on the server; incomplete ones are resumed. */
  known: readonly Upload[];
}

const MAX_CONCURRENT = 2;
const CHUNK_BYTES = 64 * 1_024 * 1_024;
const RETRY_DELAYS_MS = [0, 1_000, 3_000, 5_000];

let tasks: readonly UploadTask[] = [];
let deletedIds: ReadonlySet<string> = new Set();
const transfers = new Map<string, Transfer>();
const listeners = new Set<() => void>();

export const uploadStore = {
  all: (): readonly UploadTask[] => tasks,
  /** Ids deleted here, which the server may still list for a moment. */
  dropped: (): ReadonlySet<string> => deletedIds,
  subscribe: (listener: () => void): (() => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

/**
 * Queues files and returns their keys. A file that is already queued, or surely the same as an incomplete upload,
 * resumes there.
 */
export function addFiles({ team, files, known }: NewUploads): string[] {
  const keys = files.map(({ name, file }) => {
    const existing = tasks.find((task) => isAlreadyQueued(task, team, name, file));
    if (existing === undefined) return add(team, name, file, findUnfinished(known, name, file));
    resume(existing.key);
    return existing.key;
  });
  startNext();
  return keys;
}

/** Uploads one file that is not for a dataset, and returns its upload id. If it fails, nothing is kept here. */
export function uploadSingle(team: string, file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const key = add(team, file.name, file, null, (outcome) => {
      if (typeof outcome === "string") {
        resolve(outcome);
        return;
      }
      forget(key);
      reject(outcome);
    });
    startNext();
  });
}

export function pause(key: string): void {
  const one = find(key);
  if (one?.state !== "sending" && one?.state !== "queued") return;
  if (one.state === "sending") void transfers.get(key)?.tus.abort();
  update(key, { state: "paused", bytesPerSecond: 0, isOffline: false });
  startNext();
}

export function resume(key: string): void {
  const one = find(key);
  if (one?.state !== "paused" && one?.state !== "failed") return;
  update(key, { state: "queued", error: null, isOffline: false });
  startNext();
}

/** Confirms that a doubtful file is the one on the server. */
export function confirmSameFile(key: string): void {
  if (find(key)?.state !== "doubtful") return;
  update(key, { state: "queued" });
  startNext();
}

/** Replaces a doubtful upload: the file is a different one. */
export function replaceUpload(key: string): void {
  const one = find(key);
  const transfer = transfers.get(key);
  if (one?.state !== "doubtful" || transfer === undefined) return;
  forget(key);
  add(one.team, one.name, transfer.file, null);
  startNext();
  if (one.uploadId !== null) deleteUpload(one.team, one.uploadId).catch(() => undefined); // if this fails, it is listed again and can be removed
}

/** Stops all uploads and drops all files, because another user may sign in. The server keeps what it received. */
function releaseUploads(): void {
  for (const { key, state } of tasks) if (state === "sending") void transfers.get(key)?.tus.abort();
  transfers.clear();
  deletedIds = new Set();
  setTasks([]);
}

/** Stops an upload and deletes what the server received. */
export async function remove(key: string): Promise<void> {
  const one = find(key);
  if (one === undefined) return;
  if (one.state === "sending") await transfers.get(key)?.tus.abort();
  forget(key);
  if (one.uploadId !== null) await deleteUpload(one.team, one.uploadId);
}

/** Deletes an upload that only the server knows. */
export async function deleteUpload(team: string, uploadId: string): Promise<void> {
  deletedIds = new Set([...deletedIds, uploadId]);
  notify();
  try {
    await Tus.terminate(`${endpointOf(team)}/${uploadId}`, { retryDelays: RETRY_DELAYS_MS });
    forgetFile(uploadId);
  } catch (error) {
    if (isNotFound(error)) return;
    deletedIds = new Set([...deletedIds].filter((id) => id !== uploadId));
    notify();
    throw toAppError(error);
  }
}

/** Removes complete files from the list once something uses them. */
export function removeConsumed(uploadIds: readonly string[]): void {
  const ids = new Set(uploadIds);
  for (const { key, uploadId } of tasks) if (uploadId !== null && ids.has(uploadId)) forget(key);
  deletedIds = new Set([...deletedIds, ...ids]);
  notify();
}

function add(
  team: string,
  name: string,
  file: File,
  resumeFrom: Upload | null,
  onEnd?: (outcome: string | Error) => void,
): string {
  const key = randomId();
  const endpoint = endpointOf(team);
  const throughput = new Throughput();
  // A request to create the upload that is repeated because its response was lost finds the first one's upload.
  let creation = randomId();
  const tus = new Tus(file, {
    onBeforeRequest: (request) => {
      if (request.getMethod() === "POST") request.setHeader("Idempotency-Key", creation);
    },
    onAfterResponse: (_, response) => {
      if (response.getStatus() < 500) creation = randomId();
    },
    endpoint,
    uploadUrl: resumeFrom === null ? null : `${endpoint}/${resumeFrom.id}`,
    metadata: { filename: name },
    chunkSize: CHUNK_BYTES,
    retryDelays: RETRY_DELAYS_MS,
    storeFingerprintForResuming: false,
    onShouldRetry: (error) => {
      if (toAppError(error) instanceof ConnectionError) update(key, { isOffline: true, bytesPerSecond: 0 });
      return isRetryable(error);
    },
    onUploadUrlAvailable: () => {
      const id = idOf(tus.url);
      if (id !== null) rememberFile(id, file);
      update(key, { uploadId: id });
    },
    onProgress: (sent) => {
      update(key, { sent, bytesPerSecond: throughput.at(Date.now(), sent), isOffline: false });
    },
    onSuccess: () => {
      finish(key, { state: "complete", sent: file.size, isOffline: false });
      onEnd?.(idOf(tus.url) ?? "");
    },
    onError: (error) => {
      const reason = toAppError(error);
      if (reason instanceof ConnectionError) connection.lost();
      finish(key, { state: "failed", error: reason, isOffline: reason instanceof ConnectionError });
      onEnd?.(reason);
    },
  });
  transfers.set(key, { file, tus, throughput });
  const one: UploadTask = {
    key,
    team,
    name,
    bytes: file.size,
    sent: resumeFrom?.offset ?? 0,
    bytesPerSecond: 0,
    state: resumeFrom === null || isSameFile(resumeFrom.id, file) === true ? "queued" : "doubtful",
    isOffline: false,
    error: null,
    uploadId: resumeFrom?.id ?? null,
    isStandalone: onEnd !== undefined,
  };
  setTasks([...tasks, one]);
  return key;
}

/** Starts queued uploads, two at a time; more would only share the bandwidth. */
function startNext(): void {
  const free = MAX_CONCURRENT - tasks.filter(({ state }) => state === "sending").length;
  for (const { key } of tasks.filter(({ state }) => state === "queued").slice(0, Math.max(0, free))) {
    const transfer = transfers.get(key);
    transfer?.throughput.restart();
    update(key, { state: "sending" });
    transfer?.tus.start();
  }
}

function finish(key: string, change: Partial<UploadTask>): void {
  // A pause between the last byte and its response is kept.
  update(key, { bytesPerSecond: 0, ...change });
  startNext();
}

function isAlreadyQueued(task: UploadTask, team: string, name: string, file: File): boolean {
  const existing = transfers.get(task.key)?.file;
  const same = existing?.size === file.size && existing.lastModified === file.lastModified;
  return task.team === team && task.name === name && task.state !== "complete" && same;
}

function findUnfinished(known: readonly Upload[], name: string, file: File): Upload | null {
  const here = new Set(tasks.map(({ uploadId }) => uploadId));
  const fits = (one: Upload) =>
    one.mine && !one.complete && one.file_name === name && one.bytes === file.size && !here.has(one.id);
  const fitting = known.filter(fits);
  const by = (same: boolean | null) => fitting.find(({ id }) => isSameFile(id, file) === same);
  return by(true) ?? by(null) ?? null;
}

function endpointOf(team: string): string {
  return `${location.origin}/api/v1/teams/${encodeURIComponent(team)}/uploads`;
}

function idOf(url: string | null): string | null {
  return url?.split("/").at(-1) ?? null;
}

/** Refusals are final; broken connections and uploads that are still locked are retried. */
function isRetryable(error: DetailedError): boolean {
  const status = error.originalResponse?.getStatus() ?? 0;
  return status === 0 || status >= 500 || status === 423 || (status === 409 && error.originalRequest.getMethod() !== "POST");
}

function toAppError(error: unknown): Error {
  if (!(error instanceof DetailedError)) return error instanceof Error ? error : new Error(String(error));
  const response = error.originalResponse;
  if (response === null || response.getStatus() === 0) return new ConnectionError();
  return new ApiError(response.getStatus(), parseErrorBody(response.getBody()));
}

function isNotFound(error: unknown): boolean {
  const status = error instanceof DetailedError ? error.originalResponse?.getStatus() : undefined;
  return status === 404 || status === 410;
}

function find(key: string): UploadTask | undefined {
  return tasks.find((task) => task.key === key);
}

function forget(key: string): void {
  const id = find(key)?.uploadId;
  if (id !== null && id !== undefined) forgetFile(id);
  transfers.delete(key);
  setTasks(tasks.filter((task) => task.key !== key));
  startNext();
}

function update(key: string, change: Partial<UploadTask>): void {
  setTasks(tasks.map((task) => (task.key === key ? { ...task, ...change } : task)));
}

function setTasks(next: readonly UploadTask[]): void {
  tasks = next;
  const busy = tasks.some(({ state }) => state === "sending" || state === "queued");
  window.onbeforeunload = busy ? confirmLeave : null;
  notify();
}

function notify(): void {
  for (const listener of listeners) listener();
}

/** Closing the tab would interrupt the upload. */
function confirmLeave(event: BeforeUnloadEvent): void {
  event.preventDefault();
}

beforeSignOut(releaseUploads);

// A request without a response takes long to fail; the browser knows earlier.
window.addEventListener("offline", () => {
  for (const { key, state } of tasks) if (state === "sending") update(key, { isOffline: true, bytesPerSecond: 0 });
});

// Uploads that failed for lack of a connection resume once it is back.
let reconnects = connection.reconnects();
connection.subscribe(() => {
  if (connection.reconnects() === reconnects) return;
  reconnects = connection.reconnects();
  for (const { key, error } of tasks) if (error instanceof ConnectionError) resume(key);
});
