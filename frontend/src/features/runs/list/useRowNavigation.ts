import { useCallback, useEffect, useMemo, useRef, useState, type FocusEvent, type RefObject } from "react";
import { useHotkeys } from "@/lib/hooks/useHotkeys";

/** `j` and `k` focus the next or previous row, including rows that are not rendered yet. */
export function useRowNavigation(box: RefObject<HTMLElement | null>, ids: readonly string[], rowPx: number, start: number) {
  const currentRow = useRef<string | null>(null);
  const [pendingRow, setPendingRow] = useState<string | null>(null);

  const move = useCallback(
    (direction: 1 | -1) => {
      const from = currentRow.current === null ? -1 : ids.indexOf(currentRow.current);
      const next = from === -1 ? 0 : Math.min(ids.length - 1, Math.max(0, from + direction));
      const id = ids[next];
      if (id === undefined) return;
      const link = linkOf(box.current, id);
      if (link !== null) {
        link.focus();
        return;
      }
      box.current?.scrollTo({ top: Math.max(0, next * rowPx - box.current.clientHeight / 2) });
      setPendingRow(id);
    },
    [box, ids, rowPx],
  );
  useEffect(() => {
    const link = pendingRow === null ? null : linkOf(box.current, pendingRow);
    link?.focus();
  }, [box, pendingRow, start]);

  useHotkeys(
    useMemo(
      () => ({
        j: () => {
          move(1);
        },
        k: () => {
          move(-1);
        },
      }),
      [move],
    ),
  );
  return {
    /** The focused row. */
    focusedRow: useCallback(() => rowOf(document.activeElement), []),
    onFocus: useCallback(({ target }: FocusEvent) => {
      currentRow.current = rowOf(target) ?? currentRow.current;
      setPendingRow(null);
    }, []),
  };
}

function rowOf(element: Element | null): string | null {
  return element?.closest<HTMLElement>("[data-row]")?.dataset["row"] ?? null;
}

function linkOf(box: HTMLElement | null, id: string): HTMLElement | null {
  const rows = Array.from(box?.querySelectorAll<HTMLElement>("[data-row]") ?? []);
  return rows.find((row) => row.dataset["row"] === id)?.querySelector("a") ?? null;
}
