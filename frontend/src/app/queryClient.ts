import { QueryCache, QueryClient } from "@tanstack/react-query";
import { ApiError, ConnectionError } from "@/api/errors";

/** Called when the session has expired. Set by the router, which leads to the sign-in page. */
export const sessionEvents = { onEnded: () => {} };

export const queryClient = new QueryClient({
  queryCache: new QueryCache({
    onError: (error) => {
      if (error instanceof ApiError && error.status === 401) sessionEvents.onEnded();
    },
  }),
  defaultOptions: {
    queries: {
      // A local server may be reachable while the browser thinks it is offline.
      networkMode: "always",
      retry: (failures, error) => failures < 2 && !(error instanceof ApiError) && !(error instanceof ConnectionError),
    },
    mutations: { networkMode: "always" },
  },
});
