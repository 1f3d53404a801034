/** Keys that hold everywhere: `g r`, `n`, `?`. A first key waits for its second only so long. */

const WAIT_MS = 1_200;

export interface KeySequence {
  /** The command of what was pressed so far; `waiting` while a second key may come, `none` where the key means nothing. */
  press: (key: string, now: number) => "none" | "waiting" | { command: string };
}

/** @param commands by their keys with a space between them */
export function keySequence(commands: readonly string[]): KeySequence {
  let first: { key: string; at: number } | null = null;
  return {
    press: (key, now) => {
      const begun = first !== null && now - first.at < WAIT_MS ? first.key : null;
      first = null;
      if (begun !== null) return commands.includes(`${begun} ${key}`) ? { command: `${begun} ${key}` } : "none";
      if (commands.includes(key)) return { command: key };
      if (!commands.some((command) => command.startsWith(`${key} `))) return "none";
      first = { key, at: now };
      return "waiting";
    },
  };
}
