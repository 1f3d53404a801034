/** Whether the API answers. Requests and streams tell; the frame shows it and tries again. */

let lostSince: number | null = null;
let epoch = 0;
const listeners = new Set<() => void>();

export const connection = {
  lost: (): void => {
    if (lostSince !== null) return;
    lostSince = Date.now();
    notify();
  },
  found: (): void => {
    if (lostSince === null) return;
    lostSince = null;
    epoch += 1;
    notify();
  },
  /** Since when nothing answers, in milliseconds since 1970; null while all is well. */
  lostSince: (): number | null => lostSince,
  /** Grows each time the connection is back: what failed because of it starts afresh. */
  epoch: (): number => epoch,
  subscribe: (listener: () => void): (() => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

function notify(): void {
  for (const listener of listeners) listener();
}
