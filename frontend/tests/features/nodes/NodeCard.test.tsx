import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Node } from "@/api/types";
import { NodeCard } from "@/features/nodes/NodeCard";
import { renderRoute } from "@tests/support/renderRoute";

function aNode(deepspeed: boolean | null): Node {
  return {
    id: "node_1",
    name: "gpu-07",
    online: true,
    draining: false,
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
      deepspeed,
    },
    slots: { cpu: 2 },
    slots_free: { cpu: 2 },
    runs: [],
  };
}

it.each([
  [true, "a CPU, 16 cores, 64 GiB, Linux, with DeepSpeed"],
  [false, "a CPU, 16 cores, 64 GiB, Linux, without DeepSpeed"],
  [null, "a CPU, 16 cores, 64 GiB, Linux"],
])("describes a node that reports deepspeed: %s", async (deepspeed, words) => {
  renderRoute(<NodeCard node={aNode(deepspeed)} now={Date.parse("2026-11-21T13:00:05Z")} />);
  expect(await screen.findByText(`${words} · last contact 5 s ago`)).toBeDefined();
});
