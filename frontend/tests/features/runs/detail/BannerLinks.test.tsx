import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { BannerLinks } from "@/features/runs/detail/BannerLinks";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";

it.each([
  ["failed", undefined, false],
  ["failed", 40, true],
  ["paused", undefined, false],
  ["succeeded", undefined, true],
] as const)("links to the checkpoints of a run that has some (%s, newest %s)", async (state, newestState, isLinked) => {
  renderRoute(<BannerLinks team="lab" run={aRun({ state })} links={["logs", "checkpoints"]} canSeeNodes={false} newestState={newestState} />);
  expect(await screen.findByRole("link", { name: "View logs" })).toBeDefined();
  expect(screen.queryByRole("link", { name: "View checkpoints" }) !== null).toBe(isLinked);
});
