import { useEffect, useRef, useState, type UIEvent } from "react";
import { longList } from "@/lib/longList";

export const LINE_PX = 18;
const NEAR_END_PX = 24;

/**
 * Where the reader of a log of `total` lines is. It follows the end until the reader looks elsewhere, and goes to
 * `line` when that changes and is not in sight. What is read stays where it is while lines are added.
 */
export function useLogScroll(total: number, line: number | undefined) {
  const box = useRef<HTMLDivElement>(null);
  const [following, setFollowing] = useState(line === undefined);
  const [seen, setSeen] = useState({ place: 0, height: 0 });
  const { height } = seen;
  const list = longList(total, LINE_PX, height);
  const place = following ? list.last : seen.place;
  const { begin, end } = list.inSight(place);
  const [empty, drawn] = [total === 0, height > 0];

  useEffect(() => {
    const element = box.current;
    if (element === null || empty) return;
    const observer = new ResizeObserver(() => {
      setSeen((old) => ({ ...old, height: element.clientHeight }));
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
    };
  }, [empty]);

  // A longer log has another rate: the scrollbar moves, what is read does not.
  const scrolled = list.scrolledAt(place);
  useEffect(() => {
    if (box.current !== null && Math.abs(box.current.scrollTop - scrolled) > 1) box.current.scrollTop = scrolled;
  }, [scrolled, list.height]);

  const wanted = line === undefined || (line > begin + 1 && line < end) ? null : list.placeOf(Math.min(line, total) - 1);
  const latest = useRef({ wanted, list });
  useEffect(() => {
    latest.current = { wanted, list };
  });
  useEffect(() => {
    const { wanted, list } = latest.current;
    if (drawn && box.current !== null && wanted !== null) box.current.scrollTop = list.scrolledAt(wanted);
  }, [line, drawn]);
  // Who comes by a link to a line finds its log in sight, wherever on the page it lies.
  const [came] = useState(line !== undefined);
  useEffect(() => {
    if (drawn && came) box.current?.scrollIntoView({ block: "nearest" });
  }, [drawn, came]);

  return {
    box,
    list,
    place,
    begin,
    end,
    following,
    /** Who looks at a line does not want it to move away. */
    stay: () => {
      setSeen({ place, height });
      setFollowing(false);
    },
    onScroll: ({ currentTarget: at }: UIEvent<HTMLElement>) => {
      const moved = Math.abs(at.scrollTop - scrolled) > 1;
      setSeen({ place: moved ? list.placeAt(at.scrollTop) : place, height: at.clientHeight });
      setFollowing(at.scrollHeight - at.scrollTop - at.clientHeight < NEAR_END_PX);
    },
  };
}
