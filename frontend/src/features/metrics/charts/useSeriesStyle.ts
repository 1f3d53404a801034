import { queryOptions, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, body } from "@/api/client";
import { defaultStyle, styleOf, type SeriesStyle } from "@/features/metrics/charts/seriesStyle";

/** The API's registry of series: their titles and units. */
const seriesQuery = queryOptions({
  queryKey: ["series"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/series", { signal })).series,
  staleTime: Infinity,
});

/** Returns the style of a series by name; until the registry is loaded, series are labelled with their names. */
export function useSeriesStyle(): (name: string) => SeriesStyle {
  const { data: series } = useQuery(seriesQuery);
  return useMemo(() => {
    const styles = new Map(series?.map((info) => [info.name, styleOf(info)]));
    return (name) => styles.get(name) ?? defaultStyle(name);
  }, [series]);
}
