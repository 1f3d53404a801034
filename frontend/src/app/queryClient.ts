import { QueryCache, QueryClient } from "@tanstack/react-query";
import { ApiError, ConnectionError } from "@/api/errors";

/** Called when the session has ended; the router sets it, since it can lead to the sign-in page. */
export const session = { onEnded: () => {} };

export const queryClient = new QueryClient({
  queryCache: new QueryCache({
    onError: (error) => {
      if (error instanceof ApiError && error.status === 401) session.onEnded();
    },
  }),
  defaultOptions: {
    queries: {
      // Our own server may be reachable where the browser believes itself offline.
      networkMode: "always",
      retry: (failures, error) => failures < 2 && !(error instanceof ApiError) && !(error instanceof ConnectionError),
    },
    mutations: { networkMode: "always" },
  },
});
