import { screen } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { Usage } from "@/api/types";
import { CheckpointStorage } from "@/features/teams/usage/CheckpointStorage";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("shows the checkpoints' storage, and that the storage limit does not apply to it", async () => {
  const usage: Usage = { quota: [], storage: { limit_bytes: 40, used_bytes: 39 }, team_checkpoint_bytes: 12 * 2 ** 30, days: [], members: [], runs: [] };
  server.use(http.get("*/api/v1/teams/lab/usage", () => HttpResponse.json(usage)));
  renderRoute(<CheckpointStorage team="lab" days={30} />);
  const number = await screen.findByText("12 GiB");
  expect(number.parentElement?.textContent).toMatch(/^Checkpoints and exports: 12 GiB, in addition to the files\. The limit above applies to uploaded files only/);
});

it("shows why their storage is unknown", async () => {
  const refusal = { title: "Busy", status: 503, code: "busy", detail: "The database is busy. Wait a second." };
  server.use(http.get("*/api/v1/teams/lab/usage", () => HttpResponse.json(refusal, { status: 503 })));
  renderRoute(<CheckpointStorage team="lab" days={30} />);
  expect(await screen.findByText("Checkpoint storage is unknown: The database is busy. Wait a second.")).toBeDefined();
});
