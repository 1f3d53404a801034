import { notifyManager, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { followEvents, type StreamEvent } from "@/api/events";
import { mergeEvents, needsReload } from "@/features/metrics/live/mergeEvents";
import { metricsKey, metricsQuery, streamUrl, windowsKey, type LiveMetrics } from "@/features/metrics/live/metricsQuery";
import { usePageVisible } from "@/lib/hooks/usePageVisible";

/** Five updates a second are enough for the eye. */
const FLUSH_MS = 200;

export interface Freshness {
  open: boolean;
  /** When data last arrived, in milliseconds since 1970. */
  lastHeardMs: number;
}

/** A run's metrics: stored ones, then streamed ones while `live`. The stream pauses while the page is hidden. */
export function useLiveMetrics(team: string, run: string, live: boolean) {
  const client = useQueryClient();
  const { data, error, refetch } = useQuery(metricsQuery(team, run));
  const [freshness, setFreshness] = useState<Freshness>({ open: false, lastHeardMs: 0 });
  const visible = usePageVisible();
  const loaded = data?.loaded;

  useEffect(() => {
    const queryKey = metricsKey(team, run);
    const start = client.getQueryData<LiveMetrics>(queryKey);
    if (!live || !visible || loaded === undefined || start === undefined) return;
    const stop = new AbortController();
    let pending: StreamEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;

    function flush(): void {
      const events = pending;
      pending = [];
      timer = undefined;
      const merged = (old: LiveMetrics | undefined) => (old === undefined ? old : mergeEvents(old, events));
      // Reloaded metrics have their own cursor, from which the next stream repeats these events.
      const mergedUnlessReloaded = (old: LiveMetrics | undefined) => (old?.loaded === loaded ? merged(old) : old);
      // Batched, so that the page renders once.
      notifyManager.batch(() => {
        client.setQueryData<LiveMetrics>(queryKey, mergedUnlessReloaded);
        client.setQueriesData<LiveMetrics>({ queryKey: windowsKey(team, run) }, merged);
        notifyManager.schedule(() => {
          setFreshness({ open: true, lastHeardMs: Date.now() });
        });
      });
      if (needsReload(events)) void client.invalidateQueries({ queryKey });
    }

    void followEvents({
      url: streamUrl(team, run),
      lastEventId: start.cursor,
      signal: stop.signal,
      onOpen: () => {
        setFreshness({ open: true, lastHeardMs: Date.now() });
      },
      onEvent: (event) => {
        pending.push(event);
        timer ??= setTimeout(flush, FLUSH_MS);
      },
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
      if (pending.length > 0) flush();
    };
  }, [client, team, run, live, visible, loaded]);

  useEffect(() => {
    const queryKey = metricsKey(team, run);
    // When the run ends, loads what the stream did not deliver.
    return () => {
      if (live) void client.invalidateQueries({ queryKey });
    };
  }, [client, team, run, live]);

  return { metrics: data, error, refetch, freshness };
}
