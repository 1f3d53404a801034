import { useCallback, useEffect, useMemo, useRef, useState, type FocusEvent, type RefObject } from "react";
import { useHotkeys } from "@/lib/useHotkeys";

/** `j` and `k`: the focus goes to the name of the next or the previous row, also to one that is not in the page yet. */
export function useWalk(box: RefObject<HTMLElement | null>, ids: readonly string[], rowPx: number, begin: number) {
  const here = useRef<string | null>(null);
  const [wanted, setWanted] = useState<string | null>(null);

  const go = useCallback(
    (direction: 1 | -1) => {
      const from = here.current === null ? -1 : ids.indexOf(here.current);
      const next = from === -1 ? 0 : Math.min(ids.length - 1, Math.max(0, from + direction));
      const id = ids[next];
      if (id === undefined) return;
      const link = linkOf(box.current, id);
      if (link !== null) {
        link.focus();
        return;
      }
      box.current?.scrollTo({ top: Math.max(0, next * rowPx - box.current.clientHeight / 2) });
      setWanted(id);
    },
    [box, ids, rowPx],
  );
  useEffect(() => {
    const link = wanted === null ? null : linkOf(box.current, wanted);
    link?.focus();
  }, [box, wanted, begin]);

  useHotkeys(
    useMemo(
      () => ({
        j: () => {
          go(1);
        },
        k: () => {
          go(-1);
        },
      }),
      [go],
    ),
  );
  return {
    /** The row that the focus is in. */
    at: useCallback(() => rowOf(document.activeElement), []),
    onFocus: useCallback(({ target }: FocusEvent) => {
      here.current = rowOf(target) ?? here.current;
      setWanted(null);
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
