import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { runQuery } from "@/features/runs/queries";

/** By then the nodes have sent the last lines of the logs. */
const LATE_LINES_MS = 5_000;

/** When the run ends, and a little later, loads what polling missed: it stops once the run is final. */
export function useRefreshAtEnd(team: string, run: string, live: boolean): void {
  const client = useQueryClient();
  const wasLive = useRef(live);
  useEffect(() => {
    const hasEnded = wasLive.current && !live;
    wasLive.current = live;
    if (!hasEnded) return;
    const refresh = () => void client.invalidateQueries({ queryKey: runQuery(team, run).queryKey });
    refresh();
    const timer = setTimeout(refresh, LATE_LINES_MS);
    return () => {
      clearTimeout(timer);
    };
  }, [client, team, run, live]);
}
