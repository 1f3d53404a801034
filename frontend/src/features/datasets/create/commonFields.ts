/** Whether files with fields can be read from the same field. */
import type { PreviewFile } from "@/api/types";

/**
 * True if some file is unreadable and no field is usable in every file with fields, so that one dataset cannot
 * hold them all.
 */
export function needDifferentFields(files: readonly PreviewFile[]): boolean {
  const usable = files
    .filter(({ columns }) => columns.length > 0)
    .map(({ columns }) => columns.filter((column) => column.usable).map(({ name }) => name))
    .filter((names) => names.length > 0);
  const [first = [], ...others] = usable;
  const hasUnreadable = files.some(({ problem, columns }) => columns.length > 0 && problem !== null && problem !== undefined);
  return hasUnreadable && others.length > 0 && !first.some((name) => others.every((names) => names.includes(name)));
}
