import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { CompareTable } from "@/features/metrics/compare/CompareTable";
import { compareViewOf } from "@/features/metrics/compare/compareView";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";

it("tells runs of one name apart by the end of their id", async () => {
  const ids = ["run_aaaaa1", "run_aaaaa2"];
  const runs = new Map(ids.map((id) => [id, aRun({ id, name: "pilot" })]));
  renderRoute(<CompareTable team="lab" runs={runs} view={compareViewOf({ runs: ids.join(",") })} onChange={() => undefined} />);
  expect(await screen.findByRole("link", { name: "pilot (aaaa1)" })).toBeDefined();
  expect(screen.getByRole("button", { name: "Remove pilot (aaaa2) from the comparison" })).toBeDefined();
});

it("keeps the validation loss on phones, and says which columns are means of recent steps", async () => {
  renderRoute(<CompareTable team="lab" runs={new Map([["run_1", aRun({ id: "run_1" })]])} view={compareViewOf({ runs: "run_1" })} onChange={() => undefined} />);
  const heads = await screen.findAllByRole("columnheader");
  expect(heads.filter(({ className }) => !className.includes("max-tablet:hidden")).map(({ textContent }) => textContent)).toEqual(["line", "name", "loss", "validation", "remove"]);
  expect(heads.filter(({ title }) => title === "A mean of recent steps").map(({ textContent }) => textContent)).toEqual(["recent MFU", "recent tokens/s"]);
});
