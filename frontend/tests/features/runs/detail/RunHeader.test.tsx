import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Run } from "@/api/types";
import { RunBanner } from "@/features/runs/detail/RunBanner";
import { RunFacts } from "@/features/runs/detail/RunFacts";
import { RunHeader } from "@/features/runs/detail/RunHeader";
import { CanEdit } from "@/lib/permissions";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";

it("names data, model, precision, hardware and author of a run", async () => {
  const { spec } = aRun();
  const run = aRun({ spec: { ...spec, resources: { ...spec.resources, device: "cuda", slots_per_node: 4 } } });
  renderRoute(<RunFacts team="lab" run={run} canSeeNodes={false} dataset={<a href="/letters">letters</a>} />);
  expect(await screen.findByText("letters")).toBeDefined();
  const facts = Object.fromEntries(screen.getAllByRole("term").map((term) => [term.textContent, term.nextElementSibling?.textContent ?? ""]));
  expect(facts).toMatchObject({ data: "letters version 1", model: "2 layers × 64", precision: "bf16", on: "4 GPUs of node-a" });
  expect(facts["by"]).toContain("ana");
});

it("says that a run continues with fewer nodes than it asked for", async () => {
  const { spec } = aRun();
  const run = aRun({ spec: { ...spec, resources: { ...spec.resources, device: "cuda", nodes: 2, slots_per_node: 4 } } });
  renderRoute(<RunFacts team="lab" run={run} canSeeNodes={false} dataset={null} />);
  expect(await screen.findByText("(1 of 2 nodes)")).toBeDefined();
  expect(screen.getByText("(1 of 2 nodes)").parentElement?.textContent).toBe("4 GPUs of node-a (1 of 2 nodes)");
});

it("keeps the nodes of a run that has ended, as links for site admins", async () => {
  const ended = aRun({ state: "succeeded", nodes: [], attempt_nodes: ["node-a", "node-b"] });
  const page = renderRoute(<RunFacts team="lab" run={ended} canSeeNodes dataset={null} />);
  expect((await screen.findByRole("link", { name: "node-b" })).getAttribute("href")).toBe("/lab/nodes");
  expect(screen.getByText("on").nextElementSibling?.textContent).toBe("2 slots of node-a, node-b");
  page.unmount();
  renderRoute(<RunFacts team="lab" run={{ ...ended, state: "queued" }} canSeeNodes={false} dataset={null} />);
  expect((await screen.findByText("on")).nextElementSibling?.textContent).toBe("1 slot");
  expect(screen.queryByRole("link")).toBeNull();
});

it.each([
  ["running", "step 5,000 of 5,000, saving the last checkpoint"],
  ["completing", "exporting step 5,000"],
] as const)("says what a run does after its last step, once, while it is %s", async (state, sentence) => {
  const run = aRun({ state, sentence, summary: { ...aRun().summary, step: 5_000 } });
  renderRoute(<RunHeader team="lab" run={run} canSeeNodes={false} live={null} actions={null} banner={null} dataset={null} />);
  const title = (await screen.findByText(sentence)).parentElement;
  expect(title?.textContent).not.toContain("ago");
  expect(title?.textContent.match(/5,000 of 5,000/g)?.length ?? 0).toBe(state === "running" ? 1 : 0);
});

it("says at which step a run was paused, and keeps the freshness beside the state", async () => {
  const paused = aRun({ state: "paused", started: "2026-11-21T13:01:00Z", paused: "2026-11-21T13:01:53Z" });
  renderRoute(<RunHeader team="lab" run={paused} canSeeNodes={false} live={<i>live</i>} actions={null} banner={null} dataset={null} />);
  expect((await screen.findByRole("banner")).textContent).toBe("Runs / pilot-7Pausedliveat step 1,200 of 5,000after 53 s");
  expect(screen.getByRole("heading").title).toBe("pilot-7");
});

it("offers to continue a failed run from its newest checkpoint, to editors", async () => {
  const show = (run: Run, newestState: number | undefined, canEdit = true) =>
    renderRoute(
      <CanEdit value={canEdit}>
        <RunBanner team="lab" run={run} canSeeNodes={false} newestState={newestState} />
      </CanEdit>,
    );
  const failed = aRun({ state: "failed", reason: "crashed", sentence: "A rank crashed." });
  const page = show(failed, 250);
  expect((await screen.findByRole("link", { name: "Continue from step 250" })).getAttribute("href")).toContain("fork=run_1");
  page.unmount();
  const without = show(failed, undefined);
  expect(await screen.findByRole("link", { name: "View logs" })).toBeDefined();
  expect(screen.queryByRole("link", { name: /^Continue/ })).toBeNull();
  without.unmount();
  show(failed, 250, false);
  expect(await screen.findByRole("link", { name: "View logs" })).toBeDefined();
  expect(screen.queryByRole("link", { name: /^Continue/ })).toBeNull();
});
