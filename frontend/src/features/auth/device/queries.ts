import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";

/** What the program that shows a code asks for. A decision ends it, so it is requested once. */
export function deviceRequestQuery(code: string) {
  return queryOptions({
    queryKey: ["device", code],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/me/device/{user_code}", { params: { path: { user_code: code } }, signal })),
    staleTime: Infinity,
  });
}

export async function decideDeviceLogin(code: string, approve: boolean): Promise<void> {
  await api.POST("/api/v1/me/device", { body: { user_code: code, approve } });
}
