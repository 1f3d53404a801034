import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { KeyTable } from "@/components/KeyTable";
import { renderRoute } from "@tests/support/renderRoute";

const KEY = { id: "key_1", name: "laptop", prefix: "tw_12345678", scope: "submit", created: "2026-11-20T10:00:00Z", expires: null, last_used: null } as const;

it("shows the prefix beside the name, so that all columns fit a narrow page", async () => {
  renderRoute(<KeyTable keys={[KEY]} revoke={() => Promise.resolve()} listKey={["keys"]} label="API keys" />);
  expect(await screen.findByRole("cell", { name: "laptop tw_12345678…" })).toBeDefined();
  expect(screen.getAllByRole("columnheader").map(({ textContent }) => textContent)).toEqual(["name", "scope", "created", "expires", "last used", "actions"]);
});
