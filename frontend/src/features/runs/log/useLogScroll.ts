import { useEffect, useRef, useState, type UIEvent } from "react";
import { virtualList } from "@/features/runs/log/virtualList";

export const LINE_PX = 18;
const NEAR_END_PX = 24;

/**
 * The scroll position in a log of `total` lines. It follows the end until the user scrolls away, and goes to
 * `line` when that changes and is not visible. New lines do not move the text being read.
 */
export function useLogScroll(total: number, line: number | undefined) {
  const box = useRef<HTMLDivElement>(null);
  const [following, setFollowing] = useState(line === undefined);
  const [view, setView] = useState({ position: 0, height: 0 });
  const { height } = view;
  const list = virtualList(total, LINE_PX, height);
  const position = following ? list.endPosition : view.position;
  const { start, end } = list.visibleRows(position);
  const [empty, isDrawn] = [total === 0, height > 0];

  useEffect(() => {
    const element = box.current;
    if (element === null || empty) return;
    const observer = new ResizeObserver(() => {
      setView((old) => ({ ...old, height: element.clientHeight }));
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
    };
  }, [empty]);

  // A longer log has a different scroll rate: the scrollbar moves, the text does not.
  const scrolled = list.scrollTopAt(position);
  useEffect(() => {
    if (box.current !== null && Math.abs(box.current.scrollTop - scrolled) > 1) box.current.scrollTop = scrolled;
  }, [scrolled, list.height]);

  const targetPosition = line === undefined || (line > start + 1 && line < end) ? null : list.positionOf(Math.min(line, total) - 1);
  const latest = useRef({ targetPosition, list });
  useEffect(() => {
    latest.current = { targetPosition, list };
  });
  useEffect(() => {
    const { targetPosition, list } = latest.current;
    if (isDrawn && box.current !== null && targetPosition !== null) box.current.scrollTop = list.scrollTopAt(targetPosition);
  }, [line, isDrawn]);
  // A link to a line scrolls its log into view.
  const [openedAtLine] = useState(line !== undefined);
  useEffect(() => {
    if (isDrawn && openedAtLine) box.current?.scrollIntoView({ block: "nearest" });
  }, [isDrawn, openedAtLine]);

  return {
    box,
    list,
    position,
    start,
    end,
    following,
    /** Keeps the position when the user looks at a line. */
    stopFollowing: () => {
      setView({ position, height });
      setFollowing(false);
    },
    onScroll: ({ currentTarget: at }: UIEvent<HTMLElement>) => {
      const moved = Math.abs(at.scrollTop - scrolled) > 1;
      setView({ position: moved ? list.positionAt(at.scrollTop) : position, height: at.clientHeight });
      setFollowing(at.scrollHeight - at.scrollTop - at.clientHeight < NEAR_END_PX);
    },
  };
}
