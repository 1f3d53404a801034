import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, it, vi } from "vitest";
import type { Run } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { ChangeLayout } from "@/features/runs/parallelism/ChangeLayout";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const SCHEMA = {
  properties: {
    parallelism: { $ref: "#/$defs/Parallelism" },
    batch: { $ref: "#/$defs/Batch" },
    model: { $ref: "#/$defs/Model" },
  },
  $defs: {
    Parallelism: {
      properties: {
        tensor: { type: "integer", default: 1 },
        pipeline: { type: "integer", default: 1 },
        context: { type: "integer", default: 1 },
      },
    },
    Batch: { properties: { micro_sequences: { type: "integer", default: 8 }, global_sequences: { type: "integer", default: 64 } } },
    Model: { properties: { heads: { type: "integer", default: 4 }, width: { type: "integer", default: 192 } } },
  },
};
const RUN = aRun({ spec: { ...aRun().spec, resources: { ...aRun().spec.resources, slots_per_node: 4 } } });
const MISFIT = { field: "parallelism.tensor", message: "3 does not divide model.heads 4 with micro_sequences 8.", value: 3 };

let planned: unknown[] = [];

beforeEach(() => {
  planned = [];
  server.use(
    http.get("*/api/v1/spec", () => HttpResponse.json({ run_spec: SCHEMA, presets: {}, preset_families: {} })),
    http.post("*/api/v1/teams/lab/runs/plan", async ({ request }) => {
      planned.push(await request.json());
      return refused(MISFIT);
    }),
  );
});

function refused(problem: { field: string; message: string; value: unknown }) {
  return HttpResponse.json({ title: "x", detail: "The layout does not fit.", code: "invalid", errors: [problem] }, { status: 422 });
}

function show(run: Run = RUN) {
  const [onChanged, onClose] = [vi.fn(), vi.fn()];
  renderRoute(
    <AsyncBoundary>
      <ChangeLayout team="lab" run={run} onChanged={onChanged} onClose={onClose} />
    </AsyncBoundary>,
  );
  return { onChanged, onClose };
}

it("shows only layout and micro batch fields with the run's values, and says when they take effect", async () => {
  show();
  expect((await screen.findByLabelText<HTMLInputElement>("Tensor")).value).toBe("1");
  expect(screen.getByLabelText<HTMLInputElement>("Micro batch (sequences)").value).toBe("4");
  for (const other of ["Context", "Width", "Global batch (sequences)"]) expect(screen.queryByLabelText(other)).toBeNull();
  expect(screen.getByText(/The same 4 ranks.*The current attempt keeps its layout/)).toBeDefined();
});

it("says that a waiting run's next attempt uses the new layout", async () => {
  show({ ...RUN, state: "paused" });
  expect(await screen.findByText(/The run has no current attempt/)).toBeDefined();
});

it("plans the edited layout, and shows errors at their fields", async () => {
  show();
  const tensor = await screen.findByLabelText("Tensor");
  await userEvent.clear(tensor);
  await userEvent.type(tensor, "3");
  await waitFor(() => {
    expect(planned[planned.length - 1]).toMatchObject({ name: "pilot-7", parallelism: { tensor: 3, pipeline: 1 }, batch: { global_sequences: 8 } });
  });
  await waitFor(() => {
    expect(tensor.getAttribute("aria-invalid")).toBe("true");
  });
  expect(screen.getByText("3 does not divide “Heads” 4 with “Micro batch (sequences)” 8.")).toBeDefined();
});

it("sends the layout, passes on the updated run, and closes", async () => {
  const sent: unknown[] = [];
  const response = { ...RUN, name: "as answered" };
  server.use(
    http.put("*/api/v1/teams/lab/runs/run_1/layout", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json(response);
    }),
  );
  const { onChanged, onClose } = show();
  const tensor = await screen.findByLabelText("Tensor");
  await userEvent.clear(tensor);
  await userEvent.type(tensor, "2");
  await userEvent.click(screen.getByRole("button", { name: "Change layout" }));
  await waitFor(() => {
    expect(onClose).toHaveBeenCalledOnce();
  });
  expect(onChanged).toHaveBeenCalledWith(response);
  expect(sent).toEqual([{ parallelism: { tensor: 2, pipeline: 1 }, micro_sequences: 4 }]);
});

it("stays open if the layout is refused, and says why", async () => {
  server.use(
    http.put("*/api/v1/teams/lab/runs/run_1/layout", () => refused({ field: "run.state", message: "The run has ended.", value: "succeeded" })),
  );
  const { onChanged, onClose } = show();
  await screen.findByLabelText("Tensor");
  await userEvent.click(screen.getByRole("button", { name: "Change layout" }));
  expect(await screen.findByText(/The layout does not fit/)).toBeDefined();
  expect([onChanged, onClose].some((one) => one.mock.calls.length > 0)).toBe(false);
});
