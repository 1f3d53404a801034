import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { delay, http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { runQuery, storeRun } from "@/features/runs/queries";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

it("keeps the state after an action, although a poll in flight returns the earlier one", async () => {
  server.use(
    http.get("*/api/v1/teams/lab/runs/run_1", async () => {
      await delay(50);
      return HttpResponse.json(aRun({ state: "running" }));
    }),
  );
  const client = new QueryClient();
  const { queryKey } = runQuery("lab", "run_1");
  client.setQueryData(queryKey, aRun({ state: "running" }));
  const observer = new QueryObserver(client, { ...runQuery("lab", "run_1"), refetchInterval: false });
  const stop = observer.subscribe(() => undefined);
  expect(observer.getCurrentResult().isFetching).toBe(true);
  await storeRun(client, "lab", aRun({ state: "paused" }));
  await delay(150);
  expect(client.getQueryData(queryKey)?.state).toBe("paused");
  stop();
});
