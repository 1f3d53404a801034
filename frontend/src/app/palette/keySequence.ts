/** Key sequences such as `g r`, `n` and `?`. The first key of a pair expires after a short wait. */

const WAIT_MS = 1_200;

export interface KeySequence {
  /** The command for the keys pressed so far; `waiting` while a second key may follow, `none` if nothing matches. */
  press: (key: string, now: number) => "none" | "waiting" | { command: string };
}

/** @param commands their keys, separated by a space */
export function keySequence(commands: readonly string[]): KeySequence {
  let first: { key: string; at: number } | null = null;
  return {
    press: (key, now) => {
      const prefix = first !== null && now - first.at < WAIT_MS ? first.key : null;
      first = null;
      if (prefix !== null) return commands.includes(`${prefix} ${key}`) ? { command: `${prefix} ${key}` } : "none";
      if (commands.includes(key)) return { command: key };
      if (!commands.some((command) => command.startsWith(`${key} `))) return "none";
      first = { key, at: now };
      return "waiting";
    },
  };
}
