import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it, vi } from "vitest";
import type { Run } from "@/api/types";
import { CommandPalette } from "@/app/palette/CommandPalette";
import { aRun } from "@tests/support/runs";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("opens the typed run, even if Enter is pressed before the search has responded", async () => {
  const runs = [aRun({ id: "run_1", name: "pilot-1" }), aRun({ id: "run_2", name: "night-2" })];
  server.use(
    http.get("*/teams/lab/runs", ({ request }) => {
      const q = new URL(request.url).searchParams.get("q") ?? "";
      return HttpResponse.json({ items: runs.filter(({ name }) => name.includes(q)), next_cursor: null });
    }),
    http.get("*/teams/lab/datasets", () => HttpResponse.json({ items: [], next_cursor: null })),
  );
  const opened = vi.fn<(run: Run) => void>();
  renderRoute(<CommandPalette team="lab" commands={[]} onOpenRun={opened} onOpenDataset={() => undefined} onClose={() => undefined} />);
  expect(await screen.findByRole("option", { name: /pilot-1/ })).toBeDefined();
  await userEvent.type(screen.getByRole("combobox"), "night{Enter}");
  await waitFor(() => {
    expect(opened).toHaveBeenCalledOnce();
  });
  expect(opened.mock.calls[0]?.[0].name).toBe("night-2");
});

it("tells runs and datasets of one name apart by the end of their id", async () => {
  server.use(
    http.get("*/teams/lab/runs", () =>
      HttpResponse.json({ items: [aRun({ id: "run_aaaaa1", name: "pilot" }), aRun({ id: "run_aaaaa2", name: "pilot" }), aRun({ id: "run_aaaaa3", name: "night" })], next_cursor: null }),
    ),
    http.get("*/teams/lab/datasets", () =>
      HttpResponse.json({
        items: [
          { id: "ds_bbbbb1", name: "words" },
          { id: "ds_bbbbb2", name: "words" },
        ],
        next_cursor: null,
      }),
    ),
  );
  renderRoute(<CommandPalette team="lab" commands={[]} onOpenRun={() => undefined} onOpenDataset={() => undefined} onClose={() => undefined} />);
  await screen.findByRole("option", { name: /words \(bbbb2\)/ });
  expect(screen.getAllByRole("option").map((option) => option.firstElementChild?.textContent)).toEqual(["pilot (aaaa1)", "pilot (aaaa2)", "night", "words (bbbb1)", "words (bbbb2)"]);
});
