import type { LogFile } from "@/api/types";

/** Which line of which log a person looks at, and what was searched for; it stands in the address, the line as `#L123`. */
export interface LogSearch {
  attempt?: number;
  file?: string;
  line?: number;
  find?: string;
}

const LONGEST_FIND = 200;

export function parseLogSearch({ attempt, file, find }: Record<string, unknown>): Omit<LogSearch, "line"> {
  return {
    ...(isNumber(attempt) ? { attempt } : {}),
    ...(typeof file === "string" && file !== "" ? { file } : {}),
    // A number that was searched for comes out of the address as one.
    ...((typeof find === "string" && find !== "") || typeof find === "number" ? { find: String(find).slice(0, LONGEST_FIND) } : {}),
  };
}

/** With every word there, so that what is left out is cleared. */
export function searchOfLog({ attempt, file, find }: LogSearch) {
  return { attempt, file, find };
}

/** The line that an address ends in: `L123`. */
export function lineOfHash(hash: string): number | undefined {
  const line = Number(/^L(\d{1,15})$/.exec(hash)?.[1] ?? 0);
  return line > 0 ? line : undefined;
}

export function hashOfLine(line: number | undefined): string {
  return line === undefined ? "" : `L${line}`;
}

/** Whether the address speaks of this log; without a word of any, of the first one. */
export function isMeant(log: LogFile, { attempt, file }: LogSearch, first: boolean): boolean {
  return attempt === undefined && file === undefined ? first : log.attempt === attempt && log.file === file;
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}
