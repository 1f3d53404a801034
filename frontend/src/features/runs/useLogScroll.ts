import { useEffect, useRef, useState, type UIEvent } from "react";
import { longList } from "@/lib/longList";

export const LINE_PX = 18;
const NEAR_END_PX = 24;

/**
 * Where the reader of a log of `total` lines is. It follows the end until the reader looks elsewhere, and goes to
 * `line` when that changes and is not in sight.
 */
export function useLogScroll(total: number, line: number | undefined) {
  const box = useRef<HTMLDivElement>(null);
  const [following, setFollowing] = useState(line === undefined);
  const [{ scrolled, height }, setView] = useState({ scrolled: 0, height: 0 });
  const list = longList(total, LINE_PX, height);
  const { begin, end } = list.inSight(scrolled);
  const [empty, drawn] = [total === 0, height > 0];

  useEffect(() => {
    const element = box.current;
    if (element === null || empty) return;
    const observer = new ResizeObserver(() => {
      setView({ scrolled: element.scrollTop, height: element.clientHeight });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
    };
  }, [empty]);

  useEffect(() => {
    if (following && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [following, list.height, height]);

  const wanted = line === undefined || (line > begin + 1 && line < end) ? null : list.scrollTo(Math.min(line, total) - 1);
  const latest = useRef(wanted);
  useEffect(() => {
    latest.current = wanted;
  });
  useEffect(() => {
    if (drawn && box.current !== null && latest.current !== null) box.current.scrollTop = latest.current;
  }, [line, drawn]);

  return {
    box,
    list,
    scrolled,
    begin,
    end,
    following,
    stay: () => {
      setFollowing(false);
    },
    onScroll: ({ currentTarget: at }: UIEvent<HTMLElement>) => {
      setView({ scrolled: at.scrollTop, height: at.clientHeight });
      setFollowing(at.scrollHeight - at.scrollTop - at.clientHeight < NEAR_END_PX);
    },
  };
}
