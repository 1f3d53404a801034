import { notifyManager, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { followEvents, type StreamEvent } from "@/api/events";
import { merge, needsReload } from "@/features/metrics/merge";
import { metricsKey, metricsQuery, streamUrl, windowsKey, type LiveMetrics } from "@/features/metrics/queries";
import { usePageVisible } from "@/lib/usePageVisible";

/** The eye needs no more than five pictures a second. */
const FLUSH_MS = 200;

export interface Freshness {
  open: boolean;
  /** When something last came, in milliseconds since 1970. */
  heard: number;
}

/** A run's metrics: what is stored, then, while `live`, what comes. The stream sleeps while the page is hidden. */
export function useLiveMetrics(team: string, run: string, live: boolean) {
  const client = useQueryClient();
  const { data, error, refetch } = useQuery(metricsQuery(team, run));
  const [freshness, setFreshness] = useState<Freshness>({ open: false, heard: 0 });
  const visible = usePageVisible();
  const loaded = data?.loaded;

  useEffect(() => {
    const queryKey = metricsKey(team, run);
    const start = client.getQueryData<LiveMetrics>(queryKey);
    if (!live || !visible || loaded === undefined || start === undefined) return;
    const stop = new AbortController();
    let waiting: StreamEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;

    function flush(): void {
      const events = waiting;
      waiting = [];
      timer = undefined;
      const grown = (old: LiveMetrics | undefined) => (old === undefined ? old : merge(old, events));
      // Told together, the page is drawn once.
      notifyManager.batch(() => {
        client.setQueryData<LiveMetrics>(queryKey, grown);
        client.setQueriesData<LiveMetrics>({ queryKey: windowsKey(team, run) }, grown);
        notifyManager.schedule(() => {
          setFreshness({ open: true, heard: Date.now() });
        });
      });
      if (needsReload(events)) void client.invalidateQueries({ queryKey });
    }

    void followEvents({
      url: streamUrl(team, run),
      lastEventId: start.cursor,
      signal: stop.signal,
      onOpen: () => {
        setFreshness({ open: true, heard: Date.now() });
      },
      onEvent: (event) => {
        waiting.push(event);
        timer ??= setTimeout(flush, FLUSH_MS);
      },
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
      if (waiting.length > 0) flush();
    };
  }, [client, team, run, live, visible, loaded]);

  useEffect(() => {
    const queryKey = metricsKey(team, run);
    // When the run ends, what the stream did not bring any more is loaded.
    return () => {
      if (live) void client.invalidateQueries({ queryKey });
    };
  }, [client, team, run, live]);

  return { metrics: data, error, refetch, freshness };
}
