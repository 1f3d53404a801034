import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";

export const healthQuery = queryOptions({
  queryKey: ["health"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/health", { signal })),
  refetchInterval: 15_000,
});
