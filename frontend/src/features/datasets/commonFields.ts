/** Whether files that have fields can be read by one of them. */
import type { PreviewFile } from "@/api/types";

/** True where some file cannot be read and no field is usable in all files that have fields: one dataset cannot hold them. */
export function needDifferentFields(files: readonly PreviewFile[]): boolean {
  const usable = files
    .filter(({ columns }) => columns.length > 0)
    .map(({ columns }) => columns.filter((column) => column.usable).map(({ name }) => name))
    .filter((names) => names.length > 0);
  const [first = [], ...others] = usable;
  const isBad = files.some(({ problem, columns }) => columns.length > 0 && problem !== null && problem !== undefined);
  return isBad && others.length > 0 && !first.some((name) => others.every((names) => names.includes(name)));
}
