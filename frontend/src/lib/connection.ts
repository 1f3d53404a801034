/** Whether the API responds. Requests and streams report it; the frame shows it and retries. */

let lostSince: number | null = null;
let reconnects = 0;
const listeners = new Set<() => void>();

export const connection = {
  lost: (): void => {
    if (lostSince !== null) return;
    lostSince = Date.now();
    notify();
  },
  restored: (): void => {
    if (lostSince === null) return;
    lostSince = null;
    reconnects += 1;
    notify();
  },
  /** Since when the server has not responded, in milliseconds since 1970; null if it does. */
  lostSince: (): number | null => lostSince,
  /** Increases each time the connection is back, to reset what failed without it. */
  reconnects: (): number => reconnects,
  subscribe: (listener: () => void): (() => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

function notify(): void {
  for (const listener of listeners) listener();
}
