import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";

export const nodesQuery = queryOptions({
  queryKey: ["nodes"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/nodes", { signal })),
  refetchInterval: 5_000,
});
