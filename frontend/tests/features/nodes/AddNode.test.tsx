import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { AddNode } from "@/features/nodes/AddNode";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("shows the join command with its token once", async () => {
  server.use(
    http.post("*/api/v1/join-tokens", async ({ request }) => {
      const { name } = (await request.json()) as { name: string };
      return HttpResponse.json({ token: "a-token", name, expires: "2026-11-21T13:15:00Z" }, { status: 201 });
    }),
  );
  renderRoute(<AddNode />);
  const name = await screen.findByLabelText<HTMLInputElement>("Name of the new node");
  expect(new RegExp(`^(?:${name.pattern})$`, "v").test("gpu-07")).toBe(true);
  expect(new RegExp(`^(?:${name.pattern})$`, "v").test("My Node")).toBe(false);
  await userEvent.type(name, "gpu-07");
  await userEvent.click(screen.getByRole("button", { name: "Create join token" }));
  const command = `trainwright-agent join --api ${window.location.origin} --name gpu-07 --token a-token --data /var/lib/trainwright-agent`;
  expect(await screen.findByText(command)).toBeDefined();
  expect(screen.getByText("trainwright-agent run --data /var/lib/trainwright-agent")).toBeDefined();
  expect(name.value).toBe("");
});
