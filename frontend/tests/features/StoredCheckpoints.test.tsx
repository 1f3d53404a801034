import { screen } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { Usage } from "@/api/types";
import { StoredCheckpoints } from "@/features/teams/StoredCheckpoints";
import { renderRoute } from "../renderRoute";
import { server } from "../server";

it("says what checkpoints occupy, and that the storage limit is not for them", async () => {
  const usage: Usage = { quota: [], storage: { limit_bytes: 40, used_bytes: 39 }, team_checkpoint_bytes: 12 * 2 ** 30, days: [], runs: [] };
  server.use(http.get("*/api/v1/teams/lab/usage", () => HttpResponse.json(usage)));
  renderRoute(<StoredCheckpoints team="lab" days={30} />);
  const number = await screen.findByText("12 GiB");
  expect(number.parentElement?.textContent).toMatch(/^Checkpoints and exports: 12 GiB, beside the files\. The limit is for uploaded files/);
});

it("says why it is not known what they occupy", async () => {
  const refusal = { title: "Busy", status: 503, code: "busy", detail: "The database is busy. Wait a second." };
  server.use(http.get("*/api/v1/teams/lab/usage", () => HttpResponse.json(refusal, { status: 503 })));
  renderRoute(<StoredCheckpoints team="lab" days={30} />);
  expect(await screen.findByText("What checkpoints occupy is not known: The database is busy. Wait a second.")).toBeDefined();
});
