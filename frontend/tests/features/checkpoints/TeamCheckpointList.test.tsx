import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { Checkpoint } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { TeamCheckpointList } from "@/features/checkpoints/TeamCheckpointList";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

function checkpoint(run: string, step: number, validation: [loss: number, step: number] | null): Checkpoint {
  return {
    id: `ckpt_${run}_${step}`,
    run: `run_${run}`,
    run_name: `pilot ${run}`,
    kind: "state",
    step,
    attempt: 1,
    bytes: 2 ** 20,
    created: "2026-11-21T13:00:00Z",
    valid: true,
    pinned: false,
    contents: null,
    validation_loss: validation?.[0] ?? null,
    validation_step: validation?.[1] ?? null,
  };
}

async function show(items: Checkpoint[], cursor: string | null) {
  let asked = "";
  server.use(
    http.get("*/api/v1/teams/lab/checkpoints", ({ request }) => {
      asked = new URL(request.url).search;
      return HttpResponse.json({ items, next_cursor: cursor });
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <TeamCheckpointList team="lab" filter={{}} onClear={() => undefined} onFork={() => undefined} empty={null} />
    </AsyncBoundary>,
  );
  const table = await screen.findByRole("region", { name: "Checkpoints" });
  expect(asked).toContain("order=run");
  return within(table).getAllByRole("row").slice(1).map((row) => row.textContent);
}

it("groups checkpoints by run and shows each one's last validation", async () => {
  const rows = await show(
    [checkpoint("2", 30, [2.5, 25]), checkpoint("2", 20, [2.25, 20]), checkpoint("2", 10, null), checkpoint("1", 5, [3, 5])],
    null,
  );
  expect(rows[0]).toBe("pilot 23 checkpoints, 3 MiB");
  expect(rows[1]).toContain("2.500 at step 25");
  expect(rows[1]).not.toContain("lowest");
  expect(rows[2]).toContain("2.250 lowest");
  expect(rows[3]).toContain("10–");
  expect(rows[4]).toBe("pilot 11 checkpoint, 1 MiB");
  expect(rows[5]).toContain("3.000");
  expect(rows[5]).not.toContain("lowest");
});

it("does not call a loss the lowest of a run that may have more checkpoints", async () => {
  const rows = await show([checkpoint("1", 20, [2.5, 20]), checkpoint("1", 10, [3, 10])], "next");
  expect(rows[0]).toBe("pilot 1at least 2 checkpoints");
  expect(rows.join()).not.toContain("lowest");
});

it("tells runs of the same name apart by the end of their ids, and names every action", async () => {
  const twin = { ...checkpoint("longest", 5, null), run_name: "pilot 1" };
  const rows = await show([checkpoint("1", 20, null), twin, checkpoint("2", 5, null)], null);
  expect(rows[0]).toBe("pilot 1 run_11 checkpoint, 1 MiB");
  expect(rows[2]).toBe("pilot 1 ngest1 checkpoint, 1 MiB");
  expect(rows[4]).toBe("pilot 21 checkpoint, 1 MiB");
  expect(screen.getAllByText("Pin")).toHaveLength(3);
});

it("offers to pin a checkpoint in its menu too, for phones", async () => {
  const sent: unknown[] = [];
  server.use(
    http.patch("*/api/v1/teams/lab/runs/run_1/checkpoints/ckpt_1_20", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({ ...checkpoint("1", 20, null), pinned: true });
    }),
  );
  await show([checkpoint("1", 20, null)], null);
  await userEvent.click(screen.getByRole("button", { name: /^More actions for step 20/ }));
  await userEvent.click(await screen.findByRole("menuitem", { name: "Pin to protect from deletion" }));
  await waitFor(() => {
    expect(sent).toEqual([{ pinned: true }]);
  });
});
