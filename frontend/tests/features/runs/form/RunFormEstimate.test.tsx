import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, it } from "vitest";
import { asStored, ESTIMATE, GIB, GPU, openModel, PLAN, serveRunForm, showRunForm, writeName } from "@tests/support/runForm";
import { server } from "@tests/support/server";

beforeEach(serveRunForm);

it("shows the estimate and its source", async () => {
  showRunForm();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "64");
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  expect(await within(estimate).findByText("1 h 39 min")).toBeDefined();
  expect(estimate.textContent).toContain("compute0.0185 petaFLOP/s-days");
  expect(estimate.textContent).toContain("with a vocabulary of 4,096 tokens");
  expect(estimate.textContent).toContain("measured: 441,000 tokens/s in pilot-6 on node-a");
  expect(estimate.textContent).toContain("1 GiB each; the team has 12 GiB of checkpoints now");
  expect(within(estimate).queryByText("node memory")).toBeNull();
  await userEvent.clear(screen.getByLabelText("Width"));
  await userEvent.type(screen.getByLabelText("Width"), "32");
  expect(await within(estimate).findByText("over 2 h")).toBeDefined();
  expect(estimate.textContent).toContain("At the fastest node's peak. No run with this model and batch has been measured on this kind of node.");
  expect(within(estimate).getByText("slot-hours").nextElementSibling?.textContent).toBe("over 2");
  await userEvent.type(screen.getByLabelText("Width"), "8");
  expect(await within(estimate).findByText("not measured yet")).toBeDefined();
  expect(estimate.textContent).not.toContain("peak");
  expect(within(estimate).getByText("slot-hours").nextElementSibling?.textContent).toBe("–");
});

it("counts the slot-hours of all slots at the peak, as it does the time", async () => {
  server.use(
    http.post("*/runs/validate", () => {
      const spec = asStored({ width: 32 });
      const resources = { ...spec.resources, nodes: 2, slots_per_node: 4 };
      return HttpResponse.json({ valid: true, problems: [], spec: { ...spec, resources }, parameters: 360_768, train_tokens: null, warnings: [] });
    }),
  );
  showRunForm();
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  expect(await within(estimate).findByText("over 2 h")).toBeDefined();
  expect(within(estimate).getByText("slots").nextElementSibling?.textContent).toBe("8");
  expect(within(estimate).getByText("slot-hours").nextElementSibling?.textContent).toBe("over 16");
});

it("keeps the estimate of the last configuration that could be estimated while a field is invalid", async () => {
  showRunForm();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "64");
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  expect(await within(estimate).findByText("1 h 39 min")).toBeDefined();
  expect(estimate.textContent).not.toContain("last configuration");
  // At once: typed slowly, 6 alone would be the last valid width.
  fireEvent.change(screen.getByLabelText("Width"), { target: { value: "63" } });
  expect(await within(estimate).findByText(/^For the last configuration that could be estimated/)).toBeDefined();
  expect(within(estimate).getByText("1 h 39 min")).toBeDefined();
  expect(within(estimate).getByText("parameters").nextElementSibling?.textContent).toBe("361 k");
});

it("hides the figures of the earlier configuration until those of a chosen preset arrive, but not while the run is named", async () => {
  let answerCheck: () => void = () => undefined;
  let answerEstimate: () => void = () => undefined;
  const checked = new Promise<void>((resolve) => (answerCheck = resolve));
  const estimated = new Promise<void>((resolve) => (answerEstimate = resolve));
  showRunForm(() => undefined, { "model.width": "32" });
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  const verdict = screen.getByRole("status", { name: "Verdict" });
  const earlier = await within(estimate).findByText("over 2 h");
  await waitFor(() => {
    expect(verdict.textContent).toContain("Fits");
  });
  expect(earlier.closest("[inert]")).toBeNull();
  await writeName("pilot");
  expect(estimate.querySelector("[inert]")).toBeNull();
  server.use(
    http.post("*/runs/validate", async () => {
      await checked; // then the server answers as usual
    }),
    http.post("*/runs/estimate", async () => {
      await estimated;
      return HttpResponse.json(ESTIMATE);
    }),
  );
  await userEvent.click(screen.getByRole("radio", { name: /^nano/ }));
  await waitFor(() => {
    expect(earlier.closest("[inert]")).not.toBeNull();
  });
  expect(verdict.textContent).toContain("Checking…");
  answerCheck();
  await waitFor(() => {
    expect(verdict.textContent).toContain("Fits");
  });
  expect(within(estimate).getByText("over 2 h").closest("[inert]")).not.toBeNull();
  answerEstimate();
  expect((await within(estimate).findByText("1 h 39 min")).closest("[inert]")).toBeNull();
});

it("shows the estimate and the memory of a run that no node could run, but no time", async () => {
  const problem = { field: "model.layers", message: "The rank that needs the most memory takes 1.9 GiB.", value: 6 };
  const plan = { ...PLAN, slot_bytes: GIB, too_large: "No node has 1.9 GiB." };
  server.use(
    http.post("*/runs/validate", async ({ request }) => {
      const { model } = (await request.json()) as { model?: { width?: number } };
      return HttpResponse.json({ valid: false, problems: [problem], spec: asStored(model), parameters: 360_768, train_tokens: null, warnings: [] });
    }),
    http.post("*/runs/plan", () => HttpResponse.json(plan)),
  );
  showRunForm();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "64");
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  expect(await within(estimate).findByText("0.0185")).toBeDefined();
  expect(estimate.textContent).toContain("1.9 GiB");
  expect(await within(estimate).findByText(/Its slot has 1 GiB on node-a/)).toBeDefined();
  expect(within(estimate).getByText("time").parentElement?.textContent).toBe("timedoes not fit");
  expect(within(estimate).getByText("slot-hours").nextElementSibling?.textContent).toBe("–");
  expect(estimate.textContent).not.toContain("last configuration");
  expect(screen.getByRole("status", { name: "Verdict" }).textContent).toContain("Cannot start yet");
});

it("estimates a fork from its start step", async () => {
  const asked: (string | null)[] = [];
  server.use(
    http.post("*/runs/estimate", ({ request }) => {
      asked.push(new URL(request.url).searchParams.get("begin_step"));
      return HttpResponse.json(ESTIMATE);
    }),
  );
  showRunForm(() => undefined, { "model.width": "64" }, 4_900);
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  expect(await within(estimate).findByText("1 h 39 min")).toBeDefined();
  expect(asked).toEqual(["4900"]);
  expect(within(estimate).getByText("tokens").nextElementSibling?.textContent).toBe("51.2 k");
});

it("shows no estimate for a fork without steps left", async () => {
  server.use(http.post("*/runs/estimate", () => HttpResponse.error()));
  showRunForm(() => undefined, { "model.width": "64" }, 5_000);
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  expect(await within(estimate).findByText("No estimate: the fork starts at step 5,000, so it needs more steps than that.")).toBeDefined();
});

it("shows the node memory used by checkpoints and offloading", async () => {
  server.use(http.post("*/runs/estimate", () => HttpResponse.json({ ...ESTIMATE, host_bytes: 51 * GIB })));
  showRunForm();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "64");
  const memory = await screen.findByText("node memory");
  expect(memory.parentElement?.textContent).toBe("node memory51 GiBper node, for checkpoints and offloaded tensors");
});

it("plans the run on hardware that no node has, with its resources", async () => {
  const asked: unknown[] = [];
  server.use(
    http.post("*/runs/what-if", async ({ request }) => {
      const { resources } = (await request.json()) as { resources: { nodes: number } };
      asked.push([new URL(request.url).searchParams.get("gpu"), resources]);
      const too_large = resources.nodes > 1 ? null : "Each rank needs 90 GiB, and this GPU has 80 GiB. Lower model.width.";
      const plan = { ...PLAN, memory: [{ rank: 0, total: resources.nodes > 1 ? 40 * GIB : 90 * GIB }], too_large };
      return HttpResponse.json({ gpu: GPU, nodes: resources.nodes, slots_per_node: 8, plan, flops: 1e18, assumed_mfu: 0.4, seconds: 7_200 });
    }),
  );
  showRunForm();
  await userEvent.selectOptions(await screen.findByLabelText("What if it ran on other hardware?"), GPU.name);
  const panel = screen.getByRole("region", { name: "Other hardware" });
  await waitFor(() => {
    expect(panel.textContent).toContain("Does not fit H100 80GB HBM3 × 8");
  });
  expect(panel.textContent).not.toMatch(/time|about/);
  expect(panel.textContent).toContain("Each rank needs 90 GiB, and this GPU has 80 GiB. Lower “Width”.");
  await userEvent.selectOptions(screen.getByLabelText("Nodes"), "4");
  await waitFor(() => {
    expect(panel.textContent).toContain("Fits H100 80GB HBM3 × 8 on each of 4 nodes");
  });
  expect(panel.textContent).toContain("about 2 h");
  expect(panel.textContent).toContain("Estimated, not measured: assumes 40 % of the vendor's peak");
  expect(asked.at(-1)).toEqual([GPU.name, { device: "cuda", nodes: 4, slots_per_node: 8 }]);
});

it("names the errors of the form as such beside other hardware, by the label of their field", async () => {
  const problem = { field: "model.width", message: "Must be even.", value: 63 };
  server.use(http.post("*/runs/what-if", () => HttpResponse.json({ title: "Invalid", status: 422, code: "invalid", detail: "Invalid.", errors: [problem] }, { status: 422 })));
  showRunForm();
  await userEvent.selectOptions(await screen.findByLabelText("What if it ran on other hardware?"), GPU.name);
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "63");
  const panel = screen.getByRole("region", { name: "Other hardware" });
  await waitFor(() => {
    expect(panel.textContent).toContain("Fix the problem of the form first.");
  });
  expect(panel.textContent).not.toContain("Must be even.");
  expect(within(screen.getByRole("complementary", { name: "Summary" })).getByRole("link", { name: "Model: width" })).toBeDefined();
});
