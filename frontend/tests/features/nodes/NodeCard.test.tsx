import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { Node } from "@/api/types";
import { NodeCard } from "@/features/nodes/NodeCard";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

function aNode(deepspeed: boolean | null): Node {
  return {
    id: "node_1",
    name: "gpu-07",
    online: true,
    draining: false,
    move_runs: false,
    last_heartbeat: "2026-11-21T13:00:00Z",
    inventory: {
      hostname: "gpu-07",
      os: "Linux",
      cores: 16,
      memory_bytes: 64 * 2 ** 30,
      cpu_name: "a CPU",
      cpu_slots: 2,
      gpus: [],
      agent_version: "0.1.0",
      location: "",
      link_tests: true,
      deepspeed,
    },
    slots: { cpu: 2 },
    reported_slots: { cuda: 0, cpu: 2 },
    slots_free: { cpu: 2 },
    failures: [],
    runs: [],
  };
}

const GPU = { index: 0, name: "A GPU", memory_bytes: 4 * 2 ** 30 };

it.each([
  [true, "a CPU, 16 cores, 64 GiB, Linux, with DeepSpeed"],
  [false, "a CPU, 16 cores, 64 GiB, Linux, without DeepSpeed"],
  [null, "a CPU, 16 cores, 64 GiB, Linux"],
])("describes a node that reports deepspeed: %s", async (deepspeed, words) => {
  renderRoute(<NodeCard node={aNode(deepspeed)} now={Date.parse("2026-11-21T13:00:05Z")} />);
  expect(await screen.findByText(`${words} · last contact 5 s ago`)).toBeDefined();
});

it.each([
  ["2026-11-21T13:00:04Z", "just now"],
  ["2026-11-21T13:01:05Z", "1 min 5 s ago"],
])("says at %s that the last contact was %s", async (now, words) => {
  renderRoute(<NodeCard node={aNode(null)} now={Date.parse(now)} />);
  expect(await screen.findByText(`a CPU, 16 cores, 64 GiB, Linux · last contact ${words}`)).toBeDefined();
});

it("offers to allow the slots that a node reports beyond its own", async () => {
  const received: unknown[] = [];
  server.use(
    http.patch("*/api/v1/nodes/node_1", async ({ request }) => {
      received.push(await request.json());
      return HttpResponse.json(aNode(true));
    }),
  );
  renderRoute(<NodeCard node={{ ...aNode(true), reported_slots: { cuda: 1, cpu: 8 } }} now={0} />);
  expect(await screen.findByText("This node reports 1 GPU and 6 CPU slots more than it is allowed to offer.")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: /^Allow/ }));
  await waitFor(() => {
    expect(received).toEqual([{ allowed_slots: { cuda: 1, cpu: 8 } }]);
  });
});

it("moves the runs off a drained node", async () => {
  const received: unknown[] = [];
  server.use(
    http.patch("*/api/v1/nodes/node_1", async ({ request }) => {
      received.push(await request.json());
      return HttpResponse.json(aNode(true));
    }),
  );
  const run = { team: "lab", run: "run_1", name: "pilot", device: "cpu", slots: [0], state: "running" } as const;
  const drained: Node = { ...aNode(true), draining: true, runs: [{ ...run, slots: [0] }] };
  const page = renderRoute(<NodeCard node={drained} now={0} />);
  expect(await screen.findByText("No new runs start here; 1 run still running.")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: /^Move runs off/ }));
  await waitFor(() => {
    expect(received).toEqual([{ draining: true, move_runs: true }]);
  });
  page.unmount();
  renderRoute(<NodeCard node={{ ...drained, move_runs: true }} now={0} />);
  expect(await screen.findByText("No new runs start here; 1 run still to save and leave.")).toBeDefined();
  expect(screen.queryByRole("button", { name: /^Move/ })).toBeNull();
});

it("shows the current use of the node and its GPUs", async () => {
  const node: Node = {
    ...aNode(null),
    slots: { cuda: 2 },
    inventory: { ...aNode(null).inventory, gpus: [GPU, GPU] },
    hardware: {
      cpu_utilization: 0.431,
      memory_bytes: 16 * 2 ** 30,
      memory_total_bytes: 64 * 2 ** 30,
      disk_bytes: 2 ** 40,
      disk_total_bytes: 2 ** 41,
      gpus: [{ index: 1, utilization: 0.98, memory_bytes: 2 ** 30, power_watts: 412.3, temperature_celsius: null }],
    },
  };
  renderRoute(<NodeCard node={node} now={Date.parse("2026-11-21T13:00:05Z")} />);
  expect(await screen.findByText("16 GiB of 64 GiB")).toBeDefined();
  expect(screen.getByText("43.1 %")).toBeDefined();
  expect(screen.getByRole("progressbar", { name: "memory of gpu-07" }).getAttribute("aria-valuenow")).toBe("25");
  const [first, second] = screen.getAllByRole("listitem").slice(1);
  expect(first?.textContent).toBe("GPU 04 GiBfree");
  expect(second?.textContent).toBe("GPU 14 GiB98.0 %, 1 GiB, 412 Wfree");
  const meters = screen.getAllByRole("progressbar", { name: /GPU/ }).map((meter) => [meter.getAttribute("aria-label"), meter.getAttribute("aria-valuenow")]);
  expect(meters).toEqual([["Utilization of GPU 1", "98"], ["Memory of GPU 1", "25"]]);
});

it("shows the load of the last hours on demand, with a gap while the node was offline", async () => {
  const asked: (string | null)[] = [];
  server.use(
    http.get("*/api/v1/nodes/node_1/load", ({ request }) => {
      asked.push(new URL(request.url).searchParams.get("hours"));
      const series = [
        { name: "cpu_utilization", values: [0.25, null, 0.5] },
        { name: "gpu_utilization/0", values: [0.9, null, 0.8] },
        { name: "gpu_utilization/1", values: [0.1, null, 0.2] },
      ];
      return HttpResponse.json({ start: "2026-11-21T12:00:00Z", interval_seconds: 300, series });
    }),
  );
  renderRoute(<NodeCard node={aNode(null)} now={0} />);
  const load = await screen.findByRole("button", { name: /^Load/ });
  expect(asked).toEqual([]);
  await userEvent.click(load);
  expect(await screen.findByText("last 50.0 %")).toBeDefined();
  expect(screen.getByText("last: GPU 0 80.0 %, GPU 1 20.0 %")).toBeDefined();
  expect(screen.queryByText("GPU memory")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "CPU, % as a table" }));
  const rows = within(screen.getByRole("region", { name: "CPU, %, table" })).getAllByRole("row");
  expect(rows.slice(1).map((row) => row.textContent.slice(5))).toEqual(["50.0 %", "–", "25.0 %"]);
  await userEvent.click(screen.getByRole("radio", { name: "4" }));
  await waitFor(() => {
    expect(asked).toEqual(["24", "4"]);
  });
});

it("shows why a node is in quarantine and the result of its self-test, and releases it", async () => {
  const received: unknown[] = [];
  server.use(
    http.patch("*/api/v1/nodes/node_1", async ({ request }) => {
      received.push(await request.json());
      return HttpResponse.json(aNode(true));
    }),
  );
  const node = {
    ...aNode(true),
    quarantine: { since: "2026-11-21T12:00:00Z", reason: "A run hung because of it." },
    self_test: {
      time: "2026-11-21T12:30:00Z",
      passed: false,
      checks: [
        { name: "memory of cpu", passed: true, detail: "" },
        { name: "GPU 3", passed: false, detail: "It was an H100, and is gone." },
      ],
    },
  };
  renderRoute(<NodeCard node={node} now={0} />);
  expect(await screen.findByText(/until a self-test passes\. A run hung because of it\./)).toBeDefined();
  expect(screen.getByText("The self-test failed: GPU 3 (It was an H100, and is gone.). It is repeated every ten minutes.")).toBeDefined();
  expect(screen.getByText("In quarantine")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: /^Release/ }));
  await waitFor(() => {
    expect(received).toEqual([{ quarantined: false }]);
  });
});

const NOT_TESTED = { ...aNode(true), quarantine: { since: "2026-11-21T12:00:00Z", reason: "A site admin put it there." } };
const RUN = { run: "run_1", name: "pilot", team: "lab", state: "running" as const, device: "cpu" as const, slots: [0] };

it.each([
  [NOT_TESTED, "The node has no runs, so its agent runs the self-test now."],
  [{ ...NOT_TESTED, runs: [RUN] }, "The self-test starts when no runs are left on it."],
  [{ ...NOT_TESTED, online: false }, "The self-test starts when the node is back and no runs are left on it."],
])("shows when a node in quarantine is tested (%#)", async (node, words) => {
  renderRoute(<NodeCard node={node} now={0} />);
  expect(await screen.findByText(words)).toBeDefined();
});

it("lists what the newest self-test measured, also after the quarantine", async () => {
  const checks = [
    { name: "memory of cpu", passed: true, detail: "" },
    { name: "connection to gpu-08", passed: true, detail: "1,180.3 MB/s" },
  ];
  renderRoute(<NodeCard node={{ ...aNode(true), self_test: { time: "2026-11-21T12:30:00Z", passed: true, checks } }} now={0} />);
  const header = await screen.findByRole("button", { name: /^Self-test ?passed/ });
  expect(screen.queryByText("1,180.3 MB/s")).toBeNull();
  await userEvent.click(header);
  expect(screen.getAllByRole("listitem").slice(-2).map(({ textContent }) => textContent)).toEqual([
    "passed: memory of cpu ",
    "passed: connection to gpu-08 1,180.3 MB/s",
  ]);
});

it("removes a drained node without runs, after asking", async () => {
  const removed: string[] = [];
  server.use(
    http.delete("*/api/v1/nodes/:node", ({ params }) => {
      removed.push(String(params["node"]));
      return new HttpResponse(null, { status: 204 });
    }),
  );
  renderRoute(<NodeCard node={{ ...aNode(true), draining: true }} now={0} />);
  await userEvent.click(await screen.findByRole("button", { name: /^Remove…/ }));
  expect(removed).toEqual([]);
  await userEvent.click(screen.getByRole("button", { name: "Remove", hidden: true }));
  await waitFor(() => {
    expect(removed).toEqual(["node_1"]);
  });
});
