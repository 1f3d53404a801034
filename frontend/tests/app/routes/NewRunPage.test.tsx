import { act, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, it } from "vitest";
import type { Checkpoint, Run } from "@/api/types";
import { queryClient } from "@/app/queryClient";
import { router } from "@/app/router";
import { openApp } from "@tests/support/app";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const ME = { id: "u_1", name: "Ada", email: "ada@example.org", site_admin: false, teams: [{ slug: "lab", name: "lab", role: "editor" }] };
const MISSING = { title: "Not found", status: 404, code: "not_found", detail: "There is no such thing." };
const DATASETS = [
  { id: "ds_1", name: "letters", created: "2026-11-21T13:00:00Z", created_by: null, versions: [] },
  { id: "ds_2", name: "notes", created: "2026-11-21T13:00:00Z", created_by: null, versions: [] },
];
const SCHEMA = {
  required: ["name", "data"],
  properties: { name: { type: "string" }, data: { $ref: "#/$defs/Data" }, model: { $ref: "#/$defs/Model" } },
  $defs: {
    Data: {
      required: ["dataset"],
      properties: { dataset: { type: "string" }, version: { anyOf: [{ type: "integer" }, { type: "null" }], default: null } },
    },
    Model: { properties: { width: { type: "integer", default: 192 } } },
  },
};

let states: Checkpoint[] = [];
let sent: { path: string; body: unknown }[] = [];

beforeEach(async () => {
  sent = [];
  states = [aState("ck_2", 1_200), aState("ck_1", 1_000)];
  const made = async ({ request }: { request: Request }) => {
    sent.push({ path: new URL(request.url).pathname, body: await request.json() });
    return HttpResponse.json(aRun({ id: "run_9" }), { status: 201 });
  };
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/spec", () => HttpResponse.json({ run_spec: SCHEMA, presets: {}, preset_families: {}, gpus: [] })),
    http.get("*/api/v1/teams/lab/datasets", () => HttpResponse.json({ items: DATASETS, next_cursor: null })),
    http.get("*/api/v1/teams/lab/tokenizers", () => HttpResponse.json([])),
    http.get("*/api/v1/teams/lab/recipes", () => HttpResponse.json({ items: [] })),
    http.get("*/api/v1/teams/lab/runs/run_1", () => HttpResponse.json(aRun())),
    http.get("*/api/v1/teams/lab/runs/run_1/checkpoints", () => HttpResponse.json({ items: states })),
    http.post("*/api/v1/teams/lab/runs/validate", async ({ request }) =>
      HttpResponse.json({ valid: true, problems: [], spec: filledIn((await request.json()) as Partial<Run["spec"]>), parameters: 1, train_tokens: null, warnings: [] }),
    ),
    http.post("*/api/v1/teams/lab/runs", made),
    http.post("*/api/v1/teams/lab/runs/run_1/fork", made),
    http.post("*/api/v1/teams/lab/runs/run_1/clone", made),
    http.all("*/api/v1/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
  await openApp("/lab/nowhere");
});

/** Opens the page afresh, without cached responses. */
async function open(search: string) {
  await go("/lab/nowhere");
  queryClient.clear();
  await go(`/lab/runs/new${search}`);
}

async function go(href: string) {
  act(() => {
    router.history.push(href);
  });
  await waitFor(() => {
    expect(router.state.resolvedLocation?.href).toBe(href);
  });
}

const name = () => screen.findByLabelText<HTMLInputElement>("Name", {}, { timeout: 5_000 });
const width = () => screen.getByLabelText<HTMLInputElement>("Width");
const openModel = async () => userEvent.click(await screen.findByRole("button", { name: /^Model settings/ }));
const version = () => screen.getByLabelText<HTMLInputElement>("Version");
const openData = async () => userEvent.click(await screen.findByRole("button", { name: /^Data settings/ }));
const press = async (verb: string) => userEvent.click(screen.getByRole("button", { name: verb }));

async function writeName(text: string) {
  await userEvent.clear(await name());
  await userEvent.type(await name(), text);
}

async function arrived() {
  await waitFor(() => {
    expect(router.state.location.pathname).toBe("/lab/runs/run_9/overview");
  });
}

it("keeps the drafts of a new run, a clone and a fork separate, across reloads and when one is started", async () => {
  await open("");
  await writeName("unfinished");
  await open("?like=run_1");
  expect((await name()).value).toBe("pilot");
  await writeName("much like it");
  await open("?fork=run_1");
  expect((await name()).value).toBe("pilot");
  expect(screen.queryByText(/^Restored your draft of/)).toBeNull();
  await writeName("on from it");
  await openData();
  await userEvent.clear(version());
  await open("?fork=run_1");
  expect((await name()).value).toBe("on from it");
  await openData();
  expect(version().value).toBe("");
  expect(screen.getByText(/^Restored your draft of/)).toBeDefined();
  await press("Start fork");
  await arrived();
  await open("?fork=run_1");
  expect((await name()).value).toBe("pilot");
  await openData();
  expect(version().value).toBe("1");
  await open("?like=run_1");
  expect((await name()).value).toBe("much like it");
  await open("");
  expect((await name()).value).toBe("unfinished");
});

it("forks from the checkpoint it shows, even if the address names none", async () => {
  await open("?fork=run_1");
  await writeName("on");
  const origin = screen.getByRole("region", { name: "Fork origin" });
  expect(origin.textContent).toContain("at step 1,200");
  states = [aState("ck_3", 1_400), ...states];
  await act(() => queryClient.invalidateQueries());
  expect(await screen.findByRole("option", { name: /1,400/ })).toBeDefined();
  expect(origin.textContent).toContain("at step 1,200");
  await press("Start fork");
  await arrived();
  expect(sent).toEqual([{ path: "/api/v1/teams/lab/runs/run_1/fork", body: { name: "on", changes: {}, checkpoint: "ck_2" } }]);
});

it("shows the model of a fork, which must stay the same, and clones to change it", async () => {
  await open("?fork=run_1");
  await openModel();
  expect(width().value).toBe("64");
  expect(width().matches(":disabled")).toBe(true);
  expect(screen.queryByRole("radiogroup", { name: "Preset" })).toBeNull();
  expect(screen.getByRole("link", { name: "Clone the run" }).getAttribute("href")).toBe("/lab/runs/new?like=run_1");
  await open("?like=run_1");
  await openModel();
  expect(width().matches(":disabled")).toBe(false);
  expect(screen.getByRole("radiogroup", { name: "Preset" })).toBeDefined();
});

it("proposes a name only once the names of the other runs are known", async () => {
  let answer = () => {};
  const names = new Promise<void>((resolve) => {
    answer = resolve;
  });
  server.use(
    http.get("*/api/v1/teams/lab/runs", async () => {
      await names;
      return HttpResponse.json({ items: [aRun({ name: "pilot" })], next_cursor: null });
    }),
  );
  await open("?like=run_1");
  await screen.findByRole("status", { name: "Loading" });
  expect(screen.queryByLabelText("Name")).toBeNull();
  act(answer);
  expect((await name()).value).toBe("pilot-2");
});

it("says before the fork of a diverged run what to change", async () => {
  await open("?fork=run_1");
  const origin = await screen.findByRole("region", { name: "Fork origin" });
  expect(origin.textContent).not.toContain("diverged");
  const diverged = aRun({ state: "failed", sentence: "After 3 attempts: Training diverged. Lower optimizer.learning_rate or lengthen the warm-up." });
  server.use(http.get("*/api/v1/teams/lab/runs/run_1", () => HttpResponse.json(diverged)));
  await open("?fork=run_1");
  expect(await screen.findByText(/^It diverged with a learning rate of 0\.001\. Lower the rate below/)).toBeDefined();
});

it("reports that its checkpoint no longer exists, and forks only after another one is chosen", async () => {
  await open("?fork=run_1&checkpoint=ck_0");
  await writeName("on");
  const origin = screen.getByRole("region", { name: "Fork origin" });
  expect(within(origin).getByRole("alert").textContent).toContain("no longer exists");
  expect(origin.textContent).not.toContain("at step");
  await press("Start fork");
  expect(await screen.findByText("Choose a checkpoint of pilot-7 to fork from.")).toBeDefined();
  expect(sent).toEqual([]);
  await userEvent.selectOptions(screen.getByLabelText("Checkpoint"), "ck_1");
  expect((await within(origin).findByText(/at step 1,000/)).textContent).toContain("Continues from pilot-7");
  await press("Start fork");
  await arrived();
  expect(sent).toMatchObject([{ body: { checkpoint: "ck_1" } }]);
});

it("clones a run through its own route, with the changes and the version of the new dataset", async () => {
  await open("?like=run_1");
  await writeName("wider");
  await openModel();
  await userEvent.clear(width());
  await userEvent.type(width(), "128");
  await userEvent.selectOptions(screen.getByLabelText("Dataset"), "notes");
  await userEvent.click(screen.getByRole("button", { name: /^Data settings/ }));
  expect(screen.getByLabelText<HTMLInputElement>("Version").value).toBe("");
  await press("Start run");
  await arrived();
  const changes = { "data.dataset": "ds_2", "data.version": 1, "model.width": 128 };
  expect(sent).toEqual([{ path: "/api/v1/teams/lab/runs/run_1/clone", body: { name: "wider", changes } }]);
});

/** Like the API, fills in what is left out. Version 1 is the newest of either dataset. */
function filledIn({ name = "", data, model, schedule }: Partial<Run["spec"]>): Run["spec"] {
  const { spec } = aRun();
  return {
    ...spec,
    name,
    data: { ...spec.data, ...data, version: data?.version ?? 1 },
    model: { ...spec.model, ...model },
    schedule: { ...spec.schedule, ...schedule },
  };
}

function aState(id: string, step: number): Checkpoint {
  return {
    id,
    run: "run_1",
    run_name: "pilot-7",
    attempt: 1,
    step,
    kind: "state",
    bytes: 1,
    valid: true,
    pinned: false,
    created: "2026-11-21T13:10:00Z",
  };
}


it("gives the fork of a finished run more steps, and checks it against its checkpoint immediately", async () => {
  states = [aState("ck_9", 5_000)];
  const checked: (string | null)[] = [];
  const schedule = { properties: { steps: { type: "integer", default: 100 } } };
  const properties = { ...SCHEMA.properties, schedule: { $ref: "#/$defs/Schedule" } };
  const schema = { ...SCHEMA, properties, $defs: { ...SCHEMA.$defs, Schedule: schedule } };
  server.use(
    http.get("*/api/v1/spec", () => HttpResponse.json({ run_spec: schema, presets: {}, preset_families: {}, gpus: [] })),
    http.post("*/api/v1/teams/lab/runs/validate", async ({ request }) => {
      checked.push(new URL(request.url).searchParams.get("checkpoint"));
      return HttpResponse.json({ valid: true, problems: [], spec: filledIn((await request.json()) as Partial<Run["spec"]>), parameters: 1, train_tokens: null, warnings: [] });
    }),
  );
  await open("?fork=run_1");
  await userEvent.type(await name(), "on");
  await waitFor(() => {
    expect(checked).toContain("ck_9");
  });
  expect(await screen.findByText(/^The 5,000 more steps are/)).toBeDefined();
  await press("Start fork");
  await arrived();
  expect(sent).toMatchObject([{ body: { changes: { "schedule.steps": 10_000 }, checkpoint: "ck_9" } }]);
});
