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

it.each([
  [40, ["View checkpoints", "Fork run", "Clone run"]],
  [undefined, ["View checkpoints", "Clone run"]],
])("offers to fork a finished run only from a checkpoint (newest %s)", async (newestState, names) => {
  renderRoute(<BannerLinks team="lab" run={aRun({ state: "succeeded" })} links={["checkpoints", "fork", "like"]} canSeeNodes={false} newestState={newestState} />);
  await screen.findByRole("link", { name: "Clone run" });
  expect(screen.getAllByRole("link").map(({ textContent }) => textContent)).toEqual(names);
});
