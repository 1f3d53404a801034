import type { LogFile } from "@/api/types";

/** The log, line and search text that the user looks at, as in the address; the line is `#L123`. */
export interface LogSearch {
  attempt?: number;
  file?: string;
  line?: number;
  find?: string;
}

const MAX_FIND_LENGTH = 200;

export function parseLogSearch({ attempt, file, find }: Record<string, unknown>): Omit<LogSearch, "line"> {
  return {
    ...(isNumber(attempt) ? { attempt } : {}),
    ...(typeof file === "string" && file !== "" ? { file } : {}),
    // A numeric search text is parsed from the address as a number.
    ...((typeof find === "string" && find !== "") || typeof find === "number" ? { find: String(find).slice(0, MAX_FIND_LENGTH) } : {}),
  };
}

/** All keys are present, so that omitted ones are cleared. */
export function searchOfLog({ attempt, file, find }: LogSearch) {
  return { attempt, file, find };
}

/** The line of an address that ends with `L123`. */
export function lineOfHash(hash: string): number | undefined {
  const line = Number(/^L(\d{1,15})$/.exec(hash)?.[1] ?? 0);
  return line > 0 ? line : undefined;
}

export function hashOfLine(line: number | undefined): string {
  return line === undefined ? "" : `L${line}`;
}

/** Whether the address refers to this log; without a log in the address, to the first one. */
export function isTarget(log: LogFile, { attempt, file }: LogSearch, first: boolean): boolean {
  return attempt === undefined && file === undefined ? first : log.attempt === attempt && log.file === file;
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}
