/**
 * Files on their way to the server. They live outside the pages, so that walking through the app does not end them, and
 * go by tus 1.0, so that what the server has stays there. A browser cannot open a file again by itself: after a reload
 * the server's list tells what is unfinished, and the same file, chosen again, goes on from there.
 */
import { DetailedError, Upload as Tus } from "tus-js-client";
import { ApiError, ConnectionError, parseErrorBody } from "@/api/errors";
import type { Upload } from "@/api/types";
import type { NamedFile } from "@/features/datasets/namedFiles";
import { forgetFile, isSameFile, rememberFile } from "@/features/datasets/rememberedFiles";
import { Speed } from "@/features/datasets/speed";
import { connection } from "@/lib/connection";
import { randomId } from "@/lib/randomId";

/** `doubtful`: the server has a part of a file of this name and size, and only the person knows whether it is the same. */
export type SendState = "doubtful" | "queued" | "sending" | "paused" | "failed" | "complete";

export interface Sending {
  key: string;
  team: string;
  name: string;
  bytes: number;
  sent: number;
  bytesPerSecond: number;
  state: SendState;
  /** Nobody answers at present; it goes on by itself. */
  cut: boolean;
  error: Error | null;
  /** Known once the server has heard of the file. */
  uploadId: string | null;
  /** It becomes no document, but something else that this page takes care of. */
  aside: boolean;
}

interface Transfer {
  file: File;
  tus: Tus;
  speed: Speed;
}

interface Wish {
  team: string;
  files: readonly NamedFile[];
  /** What the server holds already: unfinished ones go on. */
  known: readonly Upload[];
}

const AT_ONCE = 2;
const CHUNK_BYTES = 64 * 1_024 * 1_024;
const RETRY_AFTER_MS = [0, 1_000, 3_000, 5_000];

let sendings: readonly Sending[] = [];
let dropped: ReadonlySet<string> = new Set();
const transfers = new Map<string, Transfer>();
const listeners = new Set<() => void>();

export const uploadStore = {
  all: (): readonly Sending[] => sendings,
  /** Ids that were dropped here: the server's list may name them a moment longer. */
  dropped: (): ReadonlySet<string> => dropped,
  subscribe: (listener: () => void): (() => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

/** Queues files, and gives their keys; one that is here or on the server unfinished goes on where it stands, if it is surely the same. */
export function addFiles({ team, files, known }: Wish): string[] {
  const keys = files.map(({ name, file }) => {
    const held = sendings.find((one) => isHeld(one, team, name, file));
    if (held === undefined) return add(team, name, file, unfinishedOf(known, name, file));
    resume(held.key);
    return held.key;
  });
  pump();
  return keys;
}

/** Sends one file that becomes no document; gives the id of its upload. When it fails, nothing of it stays here. */
export function sendAside(team: string, file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const key = add(team, file.name, file, null, (outcome) => {
      if (typeof outcome === "string") {
        resolve(outcome);
        return;
      }
      forget(key);
      reject(outcome);
    });
    pump();
  });
}

export function pause(key: string): void {
  const one = find(key);
  if (one?.state !== "sending" && one?.state !== "queued") return;
  if (one.state === "sending") void transfers.get(key)?.tus.abort();
  update(key, { state: "paused", bytesPerSecond: 0, cut: false });
  pump();
}

export function resume(key: string): void {
  const one = find(key);
  if (one?.state !== "paused" && one?.state !== "failed") return;
  update(key, { state: "queued", error: null, cut: false });
  pump();
}

/** A doubtful file is the one that the server has a part of. */
export function goOn(key: string): void {
  if (find(key)?.state !== "doubtful") return;
  update(key, { state: "queued" });
  pump();
}

/** A doubtful file is another one: nobody goes on with what the server has. */
export function beginAnew(key: string): void {
  const one = find(key);
  const transfer = transfers.get(key);
  if (one?.state !== "doubtful" || transfer === undefined) return;
  forget(key);
  add(one.team, one.name, transfer.file, null);
  pump();
  if (one.uploadId !== null) dropUpload(one.team, one.uploadId).catch(() => undefined); // it is listed again, with Remove
}

/** Stops all, and holds no file any longer: somebody else may sign in here. The server keeps what it has. */
export function letGo(): void {
  for (const { key, state } of sendings) if (state === "sending") void transfers.get(key)?.tus.abort();
  transfers.clear();
  dropped = new Set();
  set([]);
}

/** Stops sending, and drops what the server has of it. */
export async function remove(key: string): Promise<void> {
  const one = find(key);
  if (one === undefined) return;
  if (one.state === "sending") await transfers.get(key)?.tus.abort();
  forget(key);
  if (one.uploadId !== null) await dropUpload(one.team, one.uploadId);
}

/** Drops an upload that only the server still knows. */
export async function dropUpload(team: string, uploadId: string): Promise<void> {
  dropped = new Set([...dropped, uploadId]);
  notify();
  try {
    await Tus.terminate(`${endpointOf(team)}/${uploadId}`, { retryDelays: RETRY_AFTER_MS });
    forgetFile(uploadId);
  } catch (error) {
    if (isGone(error)) return;
    dropped = new Set([...dropped].filter((id) => id !== uploadId));
    notify();
    throw told(error);
  }
}

/** Complete files that something uses from now on are no longer listed here. */
export function taken(uploadIds: readonly string[]): void {
  const ids = new Set(uploadIds);
  for (const { key, uploadId } of sendings) if (uploadId !== null && ids.has(uploadId)) forget(key);
  dropped = new Set([...dropped, ...ids]);
  notify();
}

function add(
  team: string,
  name: string,
  file: File,
  begun: Upload | null,
  onEnd?: (outcome: string | Error) => void,
): string {
  const key = randomId();
  const endpoint = endpointOf(team);
  const speed = new Speed();
  const tus = new Tus(file, {
    endpoint,
    uploadUrl: begun === null ? null : `${endpoint}/${begun.id}`,
    metadata: { filename: name },
    chunkSize: CHUNK_BYTES,
    retryDelays: RETRY_AFTER_MS,
    storeFingerprintForResuming: false,
    onShouldRetry: (error) => {
      if (told(error) instanceof ConnectionError) update(key, { cut: true, bytesPerSecond: 0 });
      return isWorthAnotherTry(error);
    },
    onUploadUrlAvailable: () => {
      const id = idOf(tus.url);
      if (id !== null) rememberFile(id, file);
      update(key, { uploadId: id });
    },
    onProgress: (sent) => {
      update(key, { sent, bytesPerSecond: speed.at(Date.now(), sent), cut: false });
    },
    onSuccess: () => {
      ended(key, { state: "complete", sent: file.size, cut: false });
      onEnd?.(idOf(tus.url) ?? "");
    },
    onError: (error) => {
      const reason = told(error);
      if (reason instanceof ConnectionError) connection.lost();
      ended(key, { state: "failed", error: reason, cut: reason instanceof ConnectionError });
      onEnd?.(reason);
    },
  });
  transfers.set(key, { file, tus, speed });
  const one: Sending = {
    key,
    team,
    name,
    bytes: file.size,
    sent: begun?.offset ?? 0,
    bytesPerSecond: 0,
    state: begun === null || isSameFile(begun.id, file) === true ? "queued" : "doubtful",
    cut: false,
    error: null,
    uploadId: begun?.id ?? null,
    aside: onEnd !== undefined,
  };
  set([...sendings, one]);
  return key;
}

/** Starts what waits, two at once: more would only share the line. */
function pump(): void {
  const free = AT_ONCE - sendings.filter(({ state }) => state === "sending").length;
  for (const { key } of sendings.filter(({ state }) => state === "queued").slice(0, Math.max(0, free))) {
    const transfer = transfers.get(key);
    transfer?.speed.restart();
    update(key, { state: "sending" });
    transfer?.tus.start();
  }
}

function ended(key: string, change: Partial<Sending>): void {
  // A pause that came between the last byte and its answer stands.
  update(key, { bytesPerSecond: 0, ...change });
  pump();
}

function isHeld(one: Sending, team: string, name: string, file: File): boolean {
  const held = transfers.get(one.key)?.file;
  const same = held?.size === file.size && held.lastModified === file.lastModified;
  return one.team === team && one.name === name && one.state !== "complete" && same;
}

function unfinishedOf(known: readonly Upload[], name: string, file: File): Upload | null {
  const here = new Set(sendings.map(({ uploadId }) => uploadId));
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

/** What the server refuses stays refused; a line that broke, or a writer that is still letting go, does not. */
function isWorthAnotherTry(error: DetailedError): boolean {
  const status = error.originalResponse?.getStatus() ?? 0;
  return status === 0 || status >= 500 || status === 423 || (status === 409 && error.originalRequest.getMethod() !== "POST");
}

function told(error: unknown): Error {
  if (!(error instanceof DetailedError)) return error instanceof Error ? error : new Error(String(error));
  const response = error.originalResponse;
  if (response === null || response.getStatus() === 0) return new ConnectionError();
  return new ApiError(response.getStatus(), parseErrorBody(response.getBody()));
}

function isGone(error: unknown): boolean {
  const status = error instanceof DetailedError ? error.originalResponse?.getStatus() : undefined;
  return status === 404 || status === 410;
}

function find(key: string): Sending | undefined {
  return sendings.find((one) => one.key === key);
}

function forget(key: string): void {
  const id = find(key)?.uploadId;
  if (id !== null && id !== undefined) forgetFile(id);
  transfers.delete(key);
  set(sendings.filter((one) => one.key !== key));
  pump();
}

function update(key: string, change: Partial<Sending>): void {
  set(sendings.map((one) => (one.key === key ? { ...one, ...change } : one)));
}

function set(next: readonly Sending[]): void {
  sendings = next;
  const busy = sendings.some(({ state }) => state === "sending" || state === "queued");
  window.onbeforeunload = busy ? askBeforeLeaving : null;
  notify();
}

function notify(): void {
  for (const listener of listeners) listener();
}

/** Closing the browser would interrupt the upload. */
function askBeforeLeaving(event: BeforeUnloadEvent): void {
  event.preventDefault();
}

// A request that nobody answers takes its time to fail; the browser knows before.
window.addEventListener("offline", () => {
  for (const { key, state } of sendings) if (state === "sending") update(key, { cut: true, bytesPerSecond: 0 });
});

// What failed because nobody answered goes on by itself once somebody does.
let epoch = connection.epoch();
connection.subscribe(() => {
  if (connection.epoch() === epoch) return;
  epoch = connection.epoch();
  for (const { key, error } of sendings) if (error instanceof ConnectionError) resume(key);
});
