import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { MemberLimits, MemberLimitUse, Quota, TeamLimits } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { MEMBER_FIELDS, parseLimit, TEAM_FIELDS } from "@/features/teams/limits/limitFields";
import { LimitMeters } from "@/features/teams/limits/LimitMeters";
import { LimitNotices } from "@/features/teams/limits/LimitNotices";
import { limitText, MemberLimitTable } from "@/features/teams/limits/MemberLimitTable";
import { TeamLimitsForm } from "@/features/teams/limits/TeamLimitsForm";
import { QuotaMeters } from "@/features/teams/usage/QuotaMeters";
import openapi from "../../../../openapi.json";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const GIB = 2 ** 30;
const NONE: MemberLimits = { gpu_hours_per_month: null, cpu_hours_per_month: null, concurrent_runs: null, queued_runs: null, gpus: null, cpu_slots: null, storage_bytes: null, highest_priority: null };

function answer(limits: Partial<TeamLimits>) {
  return {
    month: "2026-11-01",
    limits: { gpu_hours_per_month: null, cpu_hours_per_month: null, concurrent_runs: null, queued_runs: null, storage_bytes: null, editor_priority: "normal", owner_priority: "high", ...limits },
    hours: [
      { device: "cuda", limit: limits.gpu_hours_per_month ?? null, used: 450, forecast: 610 },
      { device: "cpu", limit: null, used: 0, forecast: 0 },
    ],
    storage: { limit_bytes: 10 * GIB, uploads_bytes: GIB, prepared_bytes: 2 * GIB, checkpoint_bytes: 4 * GIB, reserved_bytes: GIB },
    running: 3,
    queued: 2,
    notices: [{ time: "2026-11-20T10:00:00Z", resource: "gpu_hours", member: null, percent: 80, month: "2026-11-01", sentence: "The team used 80 % of 500 GPU-hours of November 2026 (UTC)." }],
  };
}

it("shows the month's hours with a forecast above the limit, what storage consists of, and the notices", async () => {
  server.use(http.get("*/api/v1/teams/lab/limits", () => HttpResponse.json(answer({ gpu_hours_per_month: 500, concurrent_runs: 4 }))));
  renderRoute(
    <AsyncBoundary>
      <LimitNotices team="lab" />
      <LimitMeters team="lab" />
    </AsyncBoundary>,
  );
  expect(await screen.findByText("The team used 80 % of 500 GPU-hours of November 2026 (UTC).")).toBeDefined();
  expect(screen.getByRole("progressbar", { name: "GPU-hours in November 2026" }).getAttribute("aria-valuenow")).toBe("90");
  expect(screen.getByText("forecast for the end of the month: 610, more than the limit")).toBeDefined();
  expect(screen.queryByText(/CPU slot-hours/)).toBeNull();
  expect(screen.getByText("7 GiB of 10 GiB")).toBeDefined();
  expect(screen.getByText(/prepared data 2 GiB, checkpoints and exports 4 GiB; 1 GiB reserved/)).toBeDefined();
  expect(screen.getByText("3 of 4")).toBeDefined();
  expect(screen.getByText("2, no limit")).toBeDefined();
});

/** A team whose limits a site admin edits; `sent` collects what reaches the API, as the path below the team and the body. */
function serveTeam({ limits = {}, quota = [], filesBytes = GIB, warning, refuses }: { limits?: Partial<TeamLimits>; quota?: Quota[]; filesBytes?: number; warning?: string; refuses?: string }) {
  const sent: [string, unknown][] = [];
  const team = { slug: "lab", name: "lab", quota, storage: { used_bytes: 0, limit_bytes: filesBytes } };
  const shown = answer(limits);
  server.use(
    http.get("*/api/v1/teams/lab", () => HttpResponse.json(team)),
    http.get("*/api/v1/teams/lab/limits", () => HttpResponse.json(shown)),
    http.put("*/api/v1/teams/lab/:resource/:device?", async ({ request, params }) => {
      const body = await request.json();
      sent.push([new URL(request.url).pathname.replace("/api/v1/teams/lab/", ""), body]);
      if (params.resource === refuses) return HttpResponse.json({ title: "Conflict", status: 409, code: "refused", detail: "Not now." }, { status: 409 });
      if (params.resource === "limits") Object.assign(shown.limits, body);
      if (params.resource === "storage") team.storage = { ...team.storage, ...(body as { limit_bytes: number }) };
      if (params.resource === "quota") team.quota = team.quota.map((one) => (one.device === params.device ? { ...one, ...(body as Partial<Quota>) } : one));
      return HttpResponse.json({ warning });
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <QuotaMeters team="lab" />
      <TeamLimitsForm team="lab" />
    </AsyncBoundary>,
  );
  return sent;
}

async function retype(label: string, text: string) {
  const field = await screen.findByLabelText(label);
  await userEvent.clear(field);
  if (text !== "") await userEvent.type(field, text);
}

const CPU: Quota = { device: "cpu", limit: 4, used: 3, joined: 8, guaranteed_slots: 1 };

it("replaces the team's limits, with storage in GiB and numbers of runs whole, and sends nothing that is not a number", async () => {
  const sent = serveTeam({ limits: { storage_bytes: 10 * GIB, queued_runs: 20 } });
  const storage = await screen.findByLabelText<HTMLInputElement>("Total storage, GiB");
  expect(storage.value).toBe("10");
  const save = screen.getByRole<HTMLButtonElement>("button", { name: "Save limits" });
  expect(save.disabled).toBe(true);
  await retype("GPU-hours a month", "many");
  await userEvent.click(save);
  expect(document.activeElement).toBe(screen.getByLabelText("GPU-hours a month"));
  await retype("GPU-hours a month", "500");
  await retype("Runs at once", "1.5");
  expect(screen.getByText("Enter a whole number from 0 to 1,000,000, or leave it empty.")).toBeDefined();
  await userEvent.click(save);
  expect(document.activeElement).toBe(screen.getByLabelText("Runs at once"));
  expect(sent).toEqual([]);
  await retype("Runs at once", "");
  await retype("Queued runs", "");
  await retype("Total storage, GiB", "0.5");
  await userEvent.selectOptions(screen.getByLabelText("Owners"), "normal");
  await userEvent.click(save);
  await waitFor(() => {
    expect(sent).toEqual([
      ["limits", { gpu_hours_per_month: 500, cpu_hours_per_month: null, concurrent_runs: null, queued_runs: null, storage_bytes: GIB / 2, editor_priority: "normal", owner_priority: "normal" }],
    ]);
  });
});

it("changes the slots and the files of a team, which need a limit, and nothing else", async () => {
  // 10 million bytes have more decimals in GiB than a person types, and nobody changes them here.
  const sent = serveTeam({ quota: [CPU], limits: { storage_bytes: 10_000_000 } });
  await retype("CPU slots at once", "");
  expect(screen.getByText("Enter a whole number from 0 to 1,000,000.")).toBeDefined();
  await retype("CPU slots at once", "6");
  await retype("Uploaded files, GiB", "2.5");
  expect(screen.getByRole("heading", { name: "Change the limits" })).toBeDefined();
  const save = screen.getByRole<HTMLButtonElement>("button", { name: "Save limits" });
  await userEvent.click(save);
  await waitFor(() => {
    expect(sent).toEqual([
      ["quota/cpu", { limit: 6, guaranteed_slots: 1 }],
      ["storage", { limit_bytes: 2.5 * GIB }],
    ]);
  });
  expect((await screen.findByLabelText<HTMLInputElement>("CPU slots at once")).value).toBe("6");
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Save limits" }).disabled).toBe(true);
});

it("guarantees a team at most its limit, and shows the warning of the API", async () => {
  const sent = serveTeam({ quota: [CPU], warning: "The shares of all teams are 9 CPU slots, and the nodes have 8." });
  expect(await screen.findByText("1 guaranteed, 2 borrowed")).toBeDefined();
  await retype("Guaranteed CPU slots", "5");
  expect(screen.getByText("At most the limit, “CPU slots at once”.")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Save limits" }));
  expect(document.activeElement).toBe(screen.getByLabelText("Guaranteed CPU slots"));
  await retype("Guaranteed CPU slots", "3");
  await userEvent.click(screen.getByRole("button", { name: "Save limits" }));
  expect((await screen.findByRole("status")).textContent).toContain("The shares of all teams are 9 CPU slots");
  expect(sent).toEqual([["quota/cpu", { limit: 4, guaranteed_slots: 3 }]]);
  expect(await screen.findByText("3 guaranteed")).toBeDefined();
});

it("keeps what was typed and not saved when one of the limits is refused, and the warning about another", async () => {
  const sent = serveTeam({ quota: [CPU], warning: "The nodes have 8.", refuses: "storage" });
  await retype("CPU slots at once", "6");
  await retype("Uploaded files, GiB", "2");
  await retype("Queued runs", "3");
  const save = screen.getByRole("button", { name: "Save limits" });
  await userEvent.click(save);
  expect((await screen.findByRole("alert")).textContent).toContain("Not now.");
  expect(screen.getByRole("status").textContent).toBe("The nodes have 8.");
  expect(screen.getByLabelText<HTMLInputElement>("Uploaded files, GiB").value).toBe("2");
  expect(screen.getByLabelText<HTMLInputElement>("Queued runs").value).toBe("3");
  await retype("Uploaded files, GiB", "1");
  await userEvent.click(save);
  await waitFor(() => {
    expect(sent.map(([path]) => path)).toEqual(["quota/cpu", "storage", "limits"]);
  });
});

it("names the largest limits, which are those of the API", () => {
  const { schemas } = openapi.components;
  const largest = (schema: { properties: Record<string, object> }, name: string) => {
    const property = schema.properties[name] as { anyOf: { maximum?: number }[] };
    return property.anyOf[0]?.maximum;
  };
  for (const { name, unit = 1, most } of TEAM_FIELDS) expect([name, largest(schemas.TeamLimits, name)]).toEqual([name, most * unit]);
  for (const { name, unit = 1, most } of MEMBER_FIELDS) expect([name, largest(schemas.MemberLimits, name)]).toEqual([name, most * unit]);
});

it("lets only owners change a member's limits", async () => {
  const sent: unknown[] = [];
  const ana: MemberLimitUse = { user: "user_ana", name: "Ana", limits: { ...NONE, gpus: 2 }, hours: [], storage: { limit_bytes: null, uploads_bytes: GIB, prepared_bytes: GIB, checkpoint_bytes: 3 * GIB, reserved_bytes: 0 }, running: 1, queued: 0 };
  server.use(
    http.get("*/api/v1/teams/lab/limits/members", () => HttpResponse.json([ana])),
    http.put("*/api/v1/teams/lab/limits/members/user_ana", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({});
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <MemberLimitTable team="lab" isOwner />
    </AsyncBoundary>,
  );
  await userEvent.click(await screen.findByRole("button", { name: "Change limits of Ana" }));
  expect(screen.getByRole("cell", { name: "5 GiB" })).toBeDefined();
  const dialog = within(screen.getByRole("dialog", { name: "Limits of Ana", hidden: true }));
  await userEvent.clear(dialog.getByLabelText("GPUs at once"));
  await userEvent.type(dialog.getByLabelText("Queued runs"), "few");
  await userEvent.click(dialog.getByRole("button", { name: "Save", hidden: true }));
  expect(document.activeElement).toBe(dialog.getByLabelText("Queued runs"));
  await userEvent.clear(dialog.getByLabelText("Queued runs"));
  await userEvent.type(dialog.getByLabelText("Queued runs"), "5");
  await userEvent.type(dialog.getByLabelText("Total storage, GiB"), "2");
  await userEvent.selectOptions(dialog.getByLabelText("Highest priority"), "low");
  await userEvent.click(dialog.getByRole("button", { name: "Save", hidden: true }));
  await waitFor(() => {
    expect(sent).toEqual([{ ...NONE, queued_runs: 5, storage_bytes: 2 * GIB, highest_priority: "low" }]);
  });
});

it("shows members their limits without a way to change them", async () => {
  const ana: MemberLimitUse = { user: "user_ana", name: "Ana", limits: NONE, hours: [{ device: "cpu", limit: null, used: 3, forecast: 3 }], running: 0, queued: 0 };
  server.use(http.get("*/api/v1/teams/lab/limits/members", () => HttpResponse.json([ana])));
  renderRoute(
    <AsyncBoundary>
      <MemberLimitTable team="lab" isOwner={false} />
    </AsyncBoundary>,
  );
  expect(await screen.findByText("same as the team")).toBeDefined();
  expect(screen.queryByRole("button")).toBeNull();
});

it("parses a limit as a number, as none, or as invalid", () => {
  const most = 100;
  expect(["", " 12 ", "-1", "1e9", "100", "101", "9".repeat(400)].map((typed) => parseLimit(typed, { most }))).toEqual([null, 12, undefined, undefined, 100, undefined, undefined]);
  expect(parseLimit("1.5", { unit: GIB, most })).toBe(1.5 * GIB);
  expect([parseLimit("2", { isCount: true, most }), parseLimit("1.5", { isCount: true, most })]).toEqual([2, undefined]);
  expect(limitText({ ...NONE, queued_runs: 5, highest_priority: "low" })).toBe("Queued runs 5, priority up to low");
});
